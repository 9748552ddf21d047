"""Tiny decoders and their GGUF files, by a second definition of llama.cpp's names and layouts."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pockengine.tests.zoo.zoo_language import EXPERTS, GPT2, GROUPED, SMALL, build

CONV = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
WINDOWED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 6,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4,
}
MIXED = {
    "enable_moe_block": True,
    "top_k_experts": 2,
    "num_experts": 4,
    "moe_intermediate_size": 24,
}
"""Settings of a mixture of Gemma 4."""
PER_LAYER = {
    "vocab_size_per_layer_input": SMALL["vocab_size"],
    "hidden_size_per_layer_input": 8,
    "global_head_dim": 16,
    "num_kv_shared_layers": 0,
}
FALCON_GROUPED = {"new_decoder_architecture": True, "num_kv_heads": 2}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("Llama", "LlamaForCausalLM", GROUPED),
    "mistral": ("Mistral", "MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM", GROUPED),
    "gemma": ("Gemma", "GemmaForCausalLM", GROUPED),
    "gemma2": ("Gemma2", "Gemma2ForCausalLM", GROUPED),
    "gemma3_text": ("Gemma3Text", "Gemma3ForCausalLM", GROUPED),
    "phi3": ("Phi3", "Phi3ForCausalLM", GROUPED),
    "smollm3": ("SmolLM3", "SmolLM3ForCausalLM", {**GROUPED, "no_rope_layers": [1, 0]}),
    "gpt2": ("GPT2", "GPT2LMHeadModel", GPT2),
    "phi": ("Phi", "PhiForCausalLM", {}),
    "granite": ("Granite", "GraniteForCausalLM", {**GROUPED, "embedding_multiplier": 3.0}),
    "lfm2": ("Lfm2", "Lfm2ForCausalLM", {**GROUPED, **CONV}),
    "lfm2_moe": (
        "Lfm2Moe",
        "Lfm2MoeForCausalLM",
        {**GROUPED, **CONV, **EXPERTS, "num_dense_layers": 1},
    ),
    "qwen3_moe": ("Qwen3Moe", "Qwen3MoeForCausalLM", {**GROUPED, **EXPERTS}),
    "mixtral": ("Mixtral", "MixtralForCausalLM", {**GROUPED, **EXPERTS}),
    "gpt_oss": ("GptOss", "GptOssForCausalLM", {**GROUPED, **EXPERTS, **WINDOWED}),
    "gemma4_text": ("Gemma4Text", "Gemma4ForCausalLM", {**GROUPED, **WINDOWED, **PER_LAYER}),
    "qwen3_5_text": ("Qwen3_5Text", "Qwen3_5ForCausalLM", {**GROUPED, **LINEAR}),
    "qwen3_next": ("Qwen3Next", "Qwen3NextForCausalLM", {**GROUPED, **LINEAR, **EXPERTS}),
    "apertus": ("Apertus", "ApertusForCausalLM", GROUPED),
    "arcee": ("Arcee", "ArceeForCausalLM", GROUPED),
    "bloom": ("Bloom", "BloomForCausalLM", {"n_layer": 2, "n_head": 4}),
    "cohere": ("Cohere", "CohereForCausalLM", GROUPED),
    "cohere2": ("Cohere2", "Cohere2ForCausalLM", GROUPED),
    "ernie4_5": ("Ernie4_5", "Ernie4_5ForCausalLM", GROUPED),
    "exaone4": ("Exaone4", "Exaone4ForCausalLM", GROUPED),
    "falcon": ("Falcon", "FalconForCausalLM", FALCON_GROUPED),
    "glm": ("Glm", "GlmForCausalLM", GROUPED),
    "glm4": ("Glm4", "Glm4ForCausalLM", GROUPED),
    "olmo2": ("Olmo2", "Olmo2ForCausalLM", GROUPED),
    "olmo3": ("Olmo3", "Olmo3ForCausalLM", GROUPED),
    "olmoe": ("Olmoe", "OlmoeForCausalLM", {**GROUPED, **EXPERTS}),
    "qwen2_moe": ("Qwen2Moe", "Qwen2MoeForCausalLM", {**GROUPED, **EXPERTS}),
    "seed_oss": ("SeedOss", "SeedOssForCausalLM", {**GROUPED, "residual_dropout": 0.0}),
    "starcoder2": ("Starcoder2", "Starcoder2ForCausalLM", GROUPED),
}
LAYERS = (
    (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.o_proj", "attn_output"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"mlp\.(gate|up|down)_proj", r"ffn_\1"),
    (r"input_layernorm", "attn_norm"),
)
WHOLE = (
    (r"model\.embed_tokens", "token_embd"),
    (r"model\.norm", "output_norm"),
    (r"lm_head", "output"),
    (r"model\.layers", "blk"),
)
PLAIN = ((r"post_attention_layernorm", "ffn_norm"), *LAYERS, *WHOLE)
GEMMA2 = (
    (r"pre_feedforward_layernorm", "ffn_norm"),
    (r"post_attention_layernorm", "post_attention_norm"),
    (r"post_feedforward_layernorm", "post_ffw_norm"),
    *LAYERS,
    *WHOLE,
)
EXPERT_LAYERS = ((r"(?:mlp|feed_forward)\.experts\.(gate|up|down)_proj", r"ffn_\1_exps"),)
MIXTURE = (*EXPERT_LAYERS, (r"mlp\.gate", "ffn_gate_inp"), *PLAIN)
LFM2 = (
    (r"model\.embedding_norm", "token_embd_norm"),
    (r"operator_norm", "attn_norm"),
    (r"self_attn\.out_proj", "attn_output"),
    (r"self_attn\.([qk])_layernorm", r"attn_\1_norm"),
    (r"conv\.(conv|in_proj|out_proj)", r"shortconv.\1"),
    (r"feed_forward\.w1", "ffn_gate"),
    (r"feed_forward\.w3", "ffn_up"),
    (r"feed_forward\.w2", "ffn_down"),
    *EXPERT_LAYERS,
    (r"feed_forward\.gate", "ffn_gate_inp"),
    (r"feed_forward\.expert_bias", "exp_probs_b"),
    *PLAIN,
)
QWEN3_5 = (
    (r"linear_attn\.in_proj_qkv", "attn_qkv"),
    (r"linear_attn\.in_proj_z", "attn_gate"),
    (r"linear_attn\.in_proj_a", "ssm_alpha"),
    (r"linear_attn\.in_proj_b", "ssm_beta"),
    (r"linear_attn\.(conv1d|norm)", r"ssm_\1"),
    (r"linear_attn\.out_proj", "ssm_out"),
    (r"linear_attn\.A_log", "ssm_a"),
    (r"linear_attn\.dt_bias", "ssm_dt"),
    (r"post_attention_layernorm", "post_attention_norm"),
    *LAYERS,
    *WHOLE,
)
QWEN2_MOE = (
    (r"mlp\.shared_expert\.(gate|up|down)_proj", r"ffn_\1_shexp"),
    (r"mlp\.shared_expert_gate", "ffn_gate_inp_shexp"),
    *MIXTURE,
)
QWEN3_NEXT = (
    (r"linear_attn\.in_proj_qkvz", "ssm_in"),
    (r"linear_attn\.in_proj_ba", "ssm_ba"),
    *QWEN3_5,
    *QWEN2_MOE,
)
GEMMA4 = (
    (r"router\.proj", "ffn_gate_inp"),
    (r"experts\.(gate_up|down)_proj", r"ffn_\1_exps"),
    (r"pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    (r"post_feedforward_layernorm_([12])", r"post_ffw_norm_\1"),
    (r"model\.embed_tokens_per_layer", "per_layer_token_embd"),
    (r"model\.per_layer_model_projection", "per_layer_model_proj"),
    (r"model\.per_layer_projection_norm", "per_layer_proj_norm"),
    (r"per_layer_input_gate", "inp_gate"),
    (r"per_layer_projection", "proj"),
    (r"post_per_layer_input_norm", "post_norm"),
    (r"layer_scalar", "layer_output_scale"),
    *GEMMA2,
)
OLMO2 = (
    (r"post_attention_layernorm", "post_attention_norm"),
    (r"post_feedforward_layernorm", "post_ffw_norm"),
    *LAYERS,
    *WHOLE,
)
GLM = ((r"mlp\.gate_up_proj", "ffn_up"), *PLAIN)
BLOOM = (
    (r"transformer\.word_embeddings", "token_embd"),
    (r"transformer\.word_embeddings_layernorm", "token_embd_norm"),
    (r"transformer\.ln_f", "output_norm"),
    (r"transformer\.h", "blk"),
    (r"self_attention\.query_key_value", "attn_qkv"),
    (r"self_attention\.dense", "attn_output"),
    (r"mlp\.dense_h_to_4h", "ffn_up"),
    (r"mlp\.dense_4h_to_h", "ffn_down"),
    *PLAIN,
)
THEIRS = {
    "apertus": (
        (r"attention_layernorm", "attn_norm"),
        (r"feedforward_layernorm", "ffn_norm"),
        *PLAIN,
    ),
    "bloom": BLOOM,
    "falcon": ((r"ln_mlp", "attn_norm"), (r"ln_attn", "attn_norm_2"), *BLOOM),
    **dict.fromkeys(("exaone4", "olmo2", "olmo3"), OLMO2),
    "glm": GLM,
    "glm4": (
        (r"post_self_attn_layernorm", "post_attention_norm"),
        (r"post_mlp_layernorm", "post_ffw_norm"),
        *GLM,
    ),
    "olmoe": MIXTURE,
    "qwen2_moe": QWEN2_MOE,
    "qwen3_next": QWEN3_NEXT,
    "seed_oss": ((r"post_attention_layernorm", "post_attention_norm"), *PLAIN),
    "starcoder2": ((r"mlp\.c_fc", "ffn_up"), (r"mlp\.c_proj", "ffn_down"), *PLAIN),
    "phi": (
        (r"self_attn\.dense", "attn_output"),
        (r"mlp\.fc1", "ffn_up"),
        (r"mlp\.fc2", "ffn_down"),
        (r"model\.final_layernorm", "output_norm"),
        *PLAIN,
    ),
    "lfm2": LFM2,
    "lfm2_moe": LFM2,
    "mixtral": MIXTURE,
    "qwen3_moe": MIXTURE,
    "gpt_oss": (
        *EXPERT_LAYERS,
        (r"mlp\.router", "ffn_gate_inp"),
        (r"self_attn\.sinks", "attn_sinks"),
        (r"post_attention_layernorm", "post_attention_norm"),
        *LAYERS,
        *WHOLE,
    ),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2,
    "gemma4_text": GEMMA4,
    "qwen3_5_text": QWEN3_5,
    "phi3": ((r"self_attn\.qkv_proj", "attn_qkv"), (r"mlp\.gate_up_proj", "ffn_up"), *PLAIN),
    "gpt2": (
        (r"transformer\.wte", "token_embd"),
        (r"transformer\.wpe", "position_embd"),
        (r"transformer\.ln_f", "output_norm"),
        (r"transformer\.h", "blk"),
        (r"attn\.c_attn", "attn_qkv"),
        (r"attn\.c_proj", "attn_output"),
        (r"mlp\.c_fc", "ffn_up"),
        (r"mlp\.c_proj", "ffn_down"),
        (r"ln_1", "attn_norm"),
        (r"ln_2", "ffn_norm"),
        (r"lm_head", "output"),
    ),
}
"""Patterns -> llama.cpp's weight names, by family; other families use `PLAIN`."""


PAIRED = ("arcee", "llama", "mistral", "mixtral", "smollm3", "granite")
FROM_ONE = ("gemma", "gemma2", "gemma3_text", "qwen3_5_text", "qwen3_next")


def llama_cpp_name(kind: str, name: str) -> str:
    for pattern, theirs in THEIRS.get(kind, PLAIN):
        name = re.sub(rf"(?<![^.]){pattern}\.", f"{theirs}.", name)
    return name.removesuffix(".weight") if name.endswith("ssm_a.weight") else name


def to_llama_cpp(kind: str, name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Return a weight in the converter's layout."""
    if kind in PAIRED and re.search(r"attn_[qk]\.", name):
        query = name.split(".")[-2] == "attn_q"
        count = config.num_attention_heads if query else config.num_key_value_heads
        halves = array.reshape(count, 2, -1, *array.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
    if kind in FROM_ONE and name.endswith("norm.weight") and "ssm_norm" not in name:
        return array + 1
    if kind == "gpt2" and re.search(r"(attn_qkv|attn_output|ffn_up|ffn_down)\.weight", name):
        return np.ascontiguousarray(array.T)
    if kind == "bloom" and "attn_qkv" in name:
        width = len(array) // config.num_attention_heads // 3
        parts = [array[first : first + width] for first in range(0, len(array), width)]
        return np.concatenate([*parts[::3], *parts[1::3], *parts[2::3]])
    if kind == "falcon" and "attn_qkv" in name:
        groups = config.num_kv_heads if config.new_decoder_architecture else 1
        width = config.hidden_size // config.num_attention_heads
        each = array.reshape(groups, -1, width, *array.shape[1:])
        kinds = (each[:, :-2], each[:, -2], each[:, -1])
        return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in kinds])
    if name.endswith(("shortconv.conv.weight", "ssm_conv1d.weight")):
        array = array[:, 0]
    if kind == "qwen3_next" and name.endswith("ssm_a"):
        return -np.exp(array)
    return of_value_heads(name, array, config) if kind == "qwen3_5_text" else array


def of_value_heads(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Return a weight of linear attention with its value heads in turn from each group."""
    groups, heads = config.linear_num_key_heads, config.linear_num_value_heads
    order = [
        place * (heads // groups) + turn
        for turn in range(heads // groups)
        for place in range(groups)
    ]
    width, kept = config.linear_value_head_dim, 0
    if re.search(r"ssm_(a|dt|alpha|beta)\b", name):
        width = 1
    elif re.search(r"attn_qkv|ssm_conv1d", name):
        kept = 2 * groups * config.linear_key_head_dim
    elif "ssm_out" in name:
        return np.hstack([array[:, head * width :][:, :width] for head in order])
    elif "attn_gate" not in name:
        return array
    parts = [array[kept + head * width :][:width] for head in order]
    array = np.concatenate([array[:kept], *parts])
    return -np.exp(array) if name.endswith("ssm_a") else array


def exported(kind: str, module: Any, whole: bool = False) -> Iterator[tuple[str, np.ndarray]]:
    """Yield weights as the converter does before it renames them: experts in three tensors.

    `whole`: projections of linear attention in one tensor.
    """
    for name, tensor in module.state_dict().items():
        array, end = tensor.numpy(), ".bias" if name.endswith("_bias") else ".weight"
        place, _, part = name.removesuffix("_bias").rpartition(".")
        if place.endswith("experts"):
            if kind == "gpt_oss" and end == ".weight":
                array = array.swapaxes(1, 2)
            yield from ((f"{place}.{p}{end}", a) for p, a in experts(kind, part, array))
        elif part == "weight" and place.endswith("in_proj_qkvz") and not whole:
            yield from apart_heads(place, array, module.config)
        elif part in SCALES:
            yield f"{place.removesuffix('.router')}.{SCALES[part]}", array
        else:
            bare = "bias" if name.endswith(("dt_bias", "expert_bias")) else "weight"
            yield name if name.endswith((".weight", ".bias")) else f"{name}.{bare}", array


SCALES = {"scale": "ffn_gate_inp.scale", "per_expert_scale": "ffn_down_exps.scale"}
"""llama.cpp's names of the scales of Gemma 4's router."""


def experts(kind: str, part: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the experts' weights of a part: the gate and the other product apart, or together."""
    if part == "down_proj" or kind == "gemma4_text":
        yield part, array
        return
    half = array.shape[1] // 2
    alternate = (array[:, ::2], array[:, 1::2])
    gate, up = alternate if kind == "gpt_oss" else (array[:, :half], array[:, half:])
    yield "gate_proj", gate
    yield "up_proj", up


def apart_heads(place: str, array: np.ndarray, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the rows of all queries, keys and values of Qwen3-Next, and those of z."""
    heads = np.split(array, config.linear_num_key_heads)
    key = config.linear_key_head_dim
    value = (len(heads[0]) - 2 * key) // 2
    ends = np.cumsum([key, key, value])
    queries, keys, values, z = zip(*(np.split(head, ends) for head in heads), strict=True)
    stem = place.removesuffix("qkvz")
    yield f"{stem}qkv.weight", np.concatenate([*queries, *keys, *values])
    yield f"{stem}z.weight", np.concatenate(z)


def activations(module: Any) -> list[bytes]:
    """Return keys with a number of each block: those of Apertus' activations."""
    found: dict[str, list[float]] = {}
    for name, tensor in module.state_dict().items():
        if ".act_fn." in name:
            found.setdefault(f"xielu.{name.rpartition('.')[2]}", []).append(tensor.item())
    return [
        struct.pack("<Q", len(key))
        + key.encode()
        + struct.pack(f"<IIQ{len(numbers)}f", 9, 6, len(numbers), *numbers)
        for key, numbers in found.items()
    ]


def write_f32(path: Path, kind: str, module: Any, whole: bool = False) -> None:
    """Write a module's weights in llama.cpp's format, including a tied head."""
    config, table, data = module.config, b"", b""
    weights = [pair for pair in exported(kind, module, whole) if ".act_fn." not in pair[0]]
    keys = activations(module)
    for ours, exported_array in weights:
        name = llama_cpp_name(kind, ours)
        array = to_llama_cpp(kind, name, exported_array, config)
        table += struct.pack("<Q", len(name)) + name.encode()
        table += struct.pack(f"<I{array.ndim}Q", array.ndim, *reversed(array.shape))
        table += struct.pack("<IQ", 0, len(data))
        data += array.tobytes() + bytes(-array.nbytes % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(keys)) + b"".join(keys) + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_model(kind: str, folder: Path, whole: bool = False, **changed: Any) -> Any:
    """Write a folder of a tiny model with one GGUF file; return the model."""
    name, class_name, settings = FAMILIES[kind]
    torch.manual_seed(0)
    module = build(name, class_name, **{**SMALL, **settings, **changed}).eval()
    with torch.no_grad():
        for weight in {id(one): one for one in module.state_dict().values()}.values():
            weight.add_(0.05 * torch.randn_like(weight))  # otherwise norms and biases start equal
    module.config.architectures = [class_name]
    module.config.save_pretrained(folder)
    write_f32(folder / "tiny.gguf", kind, module, whole)
    return module
