"""llama.cpp's names of weights by family, beside transformers' (its gguf-py/gguf/constants.py).

Names within a block are those of layers, to which `.weight` or `.bias` is added on both sides, or
whole names of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pockengine.compiler.ir.types import Shape

WHOLE: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
ATTENTION: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
GATED: Mapping[str, str] = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LATER_NORM: Mapping[str, str] = {
    **ATTENTION,
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
}
"""Names of blocks whose second norm llama.cpp names after attention, as transformers does."""
IN_BLOCK: Mapping[str, str] = {
    **ATTENTION,
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    **GATED,
}


@dataclass(frozen=True)
class BlockNames:
    """Transformers' names by llama.cpp's: of the whole model, and within a block.

    `keys`: of keys with a number per block, beside the shapes of transformers' tensors.
    """

    blocks: str
    whole: Mapping[str, str]
    in_block: Mapping[str, str]
    keys: Mapping[str, tuple[str, Shape]] = field(default_factory=dict)


_LLAMA = BlockNames("model.layers", WHOLE, IN_BLOCK)
_SEED_OSS = BlockNames("model.layers", WHOLE, {**LATER_NORM, **GATED})
_GEMMA2 = BlockNames(
    "model.layers",
    WHOLE,
    {
        **LATER_NORM,
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        **GATED,
    },
)
_GEMMA4 = BlockNames(
    "model.layers",
    {
        **WHOLE,
        "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
        "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
        "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight",
    },
    {
        **_GEMMA2.in_block,
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "layer_output_scale.weight": "layer_scalar",
        "ffn_gate_inp": "router.proj",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "ffn_gate_up_exps.weight": "experts.gate_up_proj",
        "ffn_down_exps.weight": "experts.down_proj",
        "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
        "post_ffw_norm_1": "post_feedforward_layernorm_1",
        "post_ffw_norm_2": "post_feedforward_layernorm_2",
    },
)
_OLMO2 = BlockNames(
    "model.layers",
    WHOLE,
    {
        **ATTENTION,
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        **GATED,
    },
)
_LINEAR: Mapping[str, str] = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_conv1d": "linear_attn.conv1d",
    "ssm_norm": "linear_attn.norm",
    "ssm_out": "linear_attn.out_proj",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
}
_QWEN3_5 = BlockNames(
    "model.layers",
    WHOLE,
    {
        **LATER_NORM,
        **GATED,
        **_LINEAR,
        "ssm_alpha": "linear_attn.in_proj_a",
        "ssm_beta": "linear_attn.in_proj_b",
    },
)
_PHI3 = BlockNames(
    "model.layers",
    WHOLE,
    {**IN_BLOCK, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
)
_PHI = BlockNames(
    "model.layers",
    {
        **WHOLE,
        "output.bias": "lm_head.bias",
        "output_norm.weight": "model.final_layernorm.weight",
        "output_norm.bias": "model.final_layernorm.bias",
    },
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.dense",
        "ffn_up": "mlp.fc1",
        "ffn_down": "mlp.fc2",
    },
)
_LFM2 = BlockNames(
    "model.layers",
    {**WHOLE, "token_embd_norm.weight": "model.embedding_norm.weight"},
    {
        **IN_BLOCK,
        "attn_norm": "operator_norm",
        "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "shortconv.conv": "conv.conv",
        "shortconv.in_proj": "conv.in_proj",
        "shortconv.out_proj": "conv.out_proj",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "feed_forward.w1",
        "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2",
    },
)
_EXPERTS: Mapping[str, str] = {
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_ROUTED: Mapping[str, str] = {**_EXPERTS, "ffn_gate_inp": "mlp.gate"}
_MIXTURE = BlockNames("model.layers", WHOLE, {**IN_BLOCK, **_ROUTED})
_LFM2_MOE = BlockNames(
    "model.layers",
    _LFM2.whole,
    {
        **_LFM2.in_block,
        "ffn_gate_exps": "feed_forward.experts.gate_proj",
        "ffn_up_exps": "feed_forward.experts.up_proj",
        "ffn_down_exps": "feed_forward.experts.down_proj",
        "ffn_gate_inp": "feed_forward.gate",
        "exp_probs_b.bias": "feed_forward.expert_bias",
    },
)
_GPT_OSS = BlockNames(
    "model.layers",
    WHOLE,
    {
        **LATER_NORM,
        **_EXPERTS,
        "ffn_gate_inp": "mlp.router",
        "attn_sinks.weight": "self_attn.sinks",
    },
)
_GPT2 = BlockNames(
    "transformer.h",
    {
        "token_embd.weight": "transformer.wte.weight",
        "position_embd.weight": "transformer.wpe.weight",
        "output_norm.weight": "transformer.ln_f.weight",
        "output_norm.bias": "transformer.ln_f.bias",
        "output.weight": "lm_head.weight",
    },
    {
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
)
_COHERE = BlockNames("model.layers", WHOLE, {**ATTENTION, "attn_norm": "input_layernorm", **GATED})
_GLM = BlockNames("model.layers", WHOLE, {**IN_BLOCK, "ffn_up": "mlp.gate_up_proj"})
_GLM4 = BlockNames(
    "model.layers",
    WHOLE,
    {
        **_GLM.in_block,
        "post_attention_norm": "post_self_attn_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
    },
)
_STARCODER2 = BlockNames(
    "model.layers",
    {**WHOLE, "output_norm.bias": "model.norm.bias"},
    {**IN_BLOCK, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
)
_BLOOM = BlockNames(
    "transformer.h",
    {
        "token_embd.weight": "transformer.word_embeddings.weight",
        "token_embd_norm.weight": "transformer.word_embeddings_layernorm.weight",
        "token_embd_norm.bias": "transformer.word_embeddings_layernorm.bias",
        "output_norm.weight": "transformer.ln_f.weight",
        "output_norm.bias": "transformer.ln_f.bias",
        "output.weight": "lm_head.weight",
    },
    {
        "attn_norm": "input_layernorm",
        "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense",
        "ffn_norm": "post_attention_layernorm",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
)
_FALCON_BLOCK: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
_FALCON = BlockNames("transformer.h", _BLOOM.whole, _FALCON_BLOCK)
_FALCON_OF_TWO_NORMS = BlockNames(
    "transformer.h",
    _BLOOM.whole,
    {**_FALCON_BLOCK, "attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"},
)
_APERTUS = BlockNames(
    "model.layers",
    WHOLE,
    {
        **ATTENTION,
        "attn_norm": "attention_layernorm",
        "ffn_norm": "feedforward_layernorm",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    {
        "xielu.alpha_p": ("mlp.act_fn.alpha_p", (1,)),
        "xielu.alpha_n": ("mlp.act_fn.alpha_n", (1,)),
        "xielu.beta": ("mlp.act_fn.beta", ()),
        "xielu.eps": ("mlp.act_fn.eps", ()),
    },
)
_SHARED: Mapping[str, str] = {
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
_QWEN2_MOE = BlockNames("model.layers", WHOLE, {**IN_BLOCK, **_ROUTED, **_SHARED})
_QWEN3_NEXT = BlockNames(
    "model.layers",
    WHOLE,
    {
        **LATER_NORM,
        **_LINEAR,
        **_ROUTED,
        **_SHARED,
        "ssm_in": "linear_attn.in_proj_qkvz",
        "ssm_ba": "linear_attn.in_proj_ba",
    },
)
KNOWN: Mapping[str, BlockNames] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _MIXTURE,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "qwen3_moe": _MIXTURE,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_5,
    "gemma": _LLAMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2,
    "gemma4_text": _GEMMA4,
    "phi3": _PHI3,
    "phi": _PHI,
    "smollm3": _LLAMA,
    "granite": _LLAMA,
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2_MOE,
    "gpt_oss": _GPT_OSS,
    "gpt2": _GPT2,
    "apertus": _APERTUS,
    "arcee": _LLAMA,
    "bloom": _BLOOM,
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "ernie4_5": _LLAMA,
    "exaone4": _OLMO2,
    "falcon": _FALCON,
    "glm": _GLM,
    "glm4": _GLM4,
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "olmoe": _MIXTURE,
    "qwen2_moe": _QWEN2_MOE,
    "seed_oss": _SEED_OSS,
    "starcoder2": _STARCODER2,
}
"""By `model_type` of config.json."""


def names_of(config: Any) -> BlockNames:
    """Return the names of a known family; blocks of larger Falcons have two norms."""
    if config.model_type != "falcon" or not config.new_decoder_architecture:
        return KNOWN[config.model_type]
    return _FALCON if config.num_ln_in_parallel_attn == 1 else _FALCON_OF_TWO_NORMS


ARCHITECTURES = {
    "mistral": "llama",
    "mixtral": "llama",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "lfm2_moe": "lfm2moe",
    "phi": "phi2",
    "gpt_oss": "gpt-oss",
    "cohere": "command-r",
    "glm": "chatglm",
    "olmo3": "olmo2",
    "qwen2_moe": "qwen2moe",
}
"""llama.cpp's names of families, where they differ."""
