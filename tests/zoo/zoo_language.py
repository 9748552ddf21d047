"""Tiny language models of transformers, built from configurations."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from pockengine.tests.zoo.zoo_cases import CLASSES, LENGTH, WORDS, Builder, Case, labels, words

SMALL = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "dropout": 0.0,
    "activation_dropout": 0.0,
    "classifier_dropout": 0.0,
    "classifier_dropout_prob": 0.0,
    "seq_classif_dropout": 0.0,
    "dropout_rate": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "summary_last_dropout": 0.0,
    "layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
}
ROUTED = {**EXPERTS, "output_router_logits": True}
LATENT = {
    **{name: 8 for name in ("kv_lora_rank", "q_lora_rank", "v_head_dim")},
    **{name: 8 for name in ("qk_rope_head_dim", "qk_nope_head_dim")},
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
CHOSEN = {"index_head_dim": 16, "index_n_heads": 16, "index_topk": 4}
"""Keys that each query attends to; with fewer heads many tie, and each framework takes others."""
OWN_NAMES = ("Funnel", "XLNet")
"""Configurations that refuse settings of `SMALL` that they do not know."""
PAIRED = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def build(name: str, kind: str, **settings: Any) -> Any:
    """Build `name`For... with a configuration of the settings that it supports."""
    config_class = getattr(transformers, f"{name}Config")
    known = vars(config_class())
    settings = {**{k: v for k, v in NO_DROPOUT.items() if k in known}, **settings}
    inherited = set(SMALL) - set(known)
    settings = {k: v for k, v in settings.items() if name not in OWN_NAMES or k not in inherited}
    config = config_class(**settings)
    return getattr(transformers, kind)(config).train()


def decoder(name: str, kind: str | None = None, **settings: Any) -> Builder:
    """Build a causal language model that shifts its labels itself."""

    def case() -> Case:
        module = build(name, kind or f"{name}ForCausalLM", **{**SMALL, **settings})
        text = words()
        return Case(module, {"input_ids": text, "labels": text})

    return case


def masked(case: Builder) -> Builder:
    """Add a padding mask, as from a tokenizer."""

    def padded() -> Case:
        plain = case()
        mask = torch.ones(plain.inputs["input_ids"].shape, dtype=torch.int64)
        mask[1, -4:] = 0
        return Case(plain.module, {**plain.inputs, "attention_mask": mask})

    return padded


def classifier(name: str, kind: str | None = None, **settings: Any) -> Builder:
    """Build a text classifier with its own loss."""

    def case() -> Case:
        settings_ = {**SMALL, "num_labels": CLASSES, **settings}
        module = build(name, kind or f"{name}ForSequenceClassification", **settings_)
        return Case(module, {"input_ids": words(), "labels": labels(2)})

    return case


def masked_language(name: str, **settings: Any) -> Builder:
    """Build a masked language model."""

    def case() -> Case:
        module = build(name, f"{name}ForMaskedLM", **{**SMALL, **settings})
        return Case(module, {"input_ids": words(), "labels": words()})

    return case


def translator(name: str, kind: str | None = None, **settings: Any) -> Builder:
    """Build an encoder-decoder model, which derives the decoder's inputs from the labels."""

    def case() -> Case:
        module = build(name, kind or f"{name}ForConditionalGeneration", **{**PAIRED, **settings})
        return Case(module, {"input_ids": words(), "labels": words(length=8)})

    return case


def ended(name: str, **settings: Any) -> Builder:
    """Build an encoder-decoder model that classifies a sentence by its last end token."""

    def case() -> Case:
        module = build(name, f"{name}ForSequenceClassification", **settings, num_labels=CLASSES)
        text = words()
        text[:, -1] = 2
        return Case(module, {"input_ids": text, "labels": labels(2)})

    return case


def nystromformer() -> Case:
    """Build a Nystromformer, whose landmark attention takes a mask of keys only."""
    case = classifier("Nystromformer", segment_means_seq_len=LENGTH, num_landmarks=4)()
    mask = torch.zeros(2, 1, 1, LENGTH)
    mask[1, :, :, -4:] = torch.finfo(mask.dtype).min
    return Case(case.module, {**case.inputs, "attention_mask": mask})


def answerer() -> Case:
    """Build a BERT model for question answering."""
    module = build("Bert", "BertForQuestionAnswering", **SMALL)
    ends = {name: labels(2, classes=LENGTH) for name in ("start_positions", "end_positions")}
    return Case(module, {"input_ids": words(), **ends})


T5 = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": WORDS}
HALF = {"embedding_size": 16}

LANGUAGE: dict[str, Callable[[], Case]] = {
    "gpt2": decoder("GPT2", "GPT2LMHeadModel", **GPT2),
    "gpt2-padded": masked(decoder("GPT2", "GPT2LMHeadModel", **GPT2)),
    "gpt2-classifier": classifier("GPT2", **GPT2),
    "llama": decoder("Llama", **GROUPED),
    "llama-padded": masked(decoder("Llama", **GROUPED)),
    "llama-eager": decoder("Llama", **GROUPED, attn_implementation="eager"),
    "mistral": decoder("Mistral", **GROUPED),
    "qwen2": decoder("Qwen2", **GROUPED),
    "qwen3": decoder("Qwen3", **GROUPED),
    "gemma": decoder("Gemma", **GROUPED),
    "gemma2": decoder("Gemma2", **GROUPED),
    "phi": decoder("Phi"),
    "phi3": decoder("Phi3", **GROUPED),
    "opt": decoder("OPT", ffn_dim=48, word_embed_proj_dim=32),
    "bloom": decoder("Bloom", n_layer=2, n_head=4),
    "gpt-neo": decoder(
        "GPTNeo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "gpt-neox": decoder("GPTNeoX"),
    "gptj": decoder("GPTJ", **GPT2, rotary_dim=4),
    "codegen": decoder("CodeGen", **GPT2, rotary_dim=4),
    "falcon": decoder("Falcon"),
    "olmo": decoder("Olmo", **GROUPED),
    "stablelm": decoder("StableLm", **GROUPED),
    "starcoder2": decoder("Starcoder2", **GROUPED),
    "mpt": decoder("Mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=32),
    "smollm3": decoder("SmolLM3", **GROUPED),
    "mamba": decoder("Mamba", state_size=4),
    "mixtral": decoder("Mixtral", **GROUPED, **ROUTED),
    "mixtral-no-router": decoder("Mixtral", **GROUPED, **EXPERTS),
    "qwen2-moe": decoder("Qwen2Moe", **GROUPED, **ROUTED),
    "qwen2-moe-no-router": decoder("Qwen2Moe", **GROUPED, **EXPERTS),
    "qwen3-moe": decoder("Qwen3Moe", **GROUPED, **ROUTED),
    "olmoe": decoder("Olmoe", **GROUPED, **ROUTED),
    "deepseek-v3.2": decoder("DeepseekV32", **{**GROUPED, **EXPERTS, **LATENT, **CHOSEN}),
    "bert": classifier("Bert"),
    "bert-fills-in": masked_language("Bert"),
    "bert-answers": answerer,
    "roberta": classifier("Roberta"),
    "camembert": classifier("Camembert"),
    "distilbert": classifier("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    "electra": classifier("Electra", **HALF),
    "albert": classifier("Albert", **HALF),
    "mpnet": classifier("MPNet"),
    "roformer": classifier("RoFormer", **HALF),
    "deberta": classifier("Deberta"),
    "deberta-v2": classifier(
        "DebertaV2",
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    ),
    "squeezebert": classifier("SqueezeBert", embedding_size=32),
    "convbert": classifier("ConvBert", **HALF),
    "modernbert": classifier("ModernBert"),
    "funnel": classifier("Funnel", d_model=32, n_head=4, d_head=8, d_inner=48, block_sizes=[1, 1]),
    "xlnet": classifier("XLNet", d_model=32, n_layer=2, n_head=4, d_inner=48),
    "xlm": classifier("XLM", emb_dim=32, n_layers=2, n_heads=4, summary_first_dropout=0.0),
    "longformer-fills-in": masked_language("Longformer", attention_window=4),
    "fnet": classifier("FNet"),
    "nystromformer": nystromformer,
    "t5": translator("T5", **T5),
    "mt5": translator("MT5", **T5),
    "bart": translator("Bart"),
    "bart-classifier": ended("Bart", **PAIRED),
    "mbart-classifier": ended("MBart", **PAIRED),
    "t5-classifier": ended("T5", **T5, eos_token_id=2),
    "marian": translator("Marian", "MarianMTModel"),
    "pegasus": translator("Pegasus"),
    "m2m100": translator("M2M100"),
}
