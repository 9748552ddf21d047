"""Decoders by name and size, or by a folder's config.json: shapes only, for memory plans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import ImportModelError

_QWEN = {"vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "llama2-7b": {"max_position_embeddings": 4096},
    "tinyllama-1.1b": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
    },
    "llama-110m": {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    },
    "qwen2.5-0.5b": {
        **_QWEN,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "qwen2.5-1.5b": {
        **_QWEN,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "qwen3-4b": {
        **_QWEN,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}
"""Published sizes of LLaMA 2, TinyLlama, llama2.c's stories110M, Qwen2.5 and Qwen3.

LLaMA's are differences from transformers' defaults, which are those of the 7B.
"""
FAMILIES = {"qwen2.5": "Qwen2", "qwen3": "Qwen3"}
"""Classes of transformers by the first part of a name; others are LLaMAs."""


def shapes_of(name: str) -> Any:
    """Return a decoder with shapes only; ImportModelError lists the known names."""
    check_decoder(name)
    import transformers

    from pockengine.models.causal_lm import decoder_of
    from pockengine.models.unfilled import unfilled

    if name in SIZES:
        family = FAMILIES.get(name.partition("-")[0], "Llama")
        config = getattr(transformers, f"{family}Config")(**SIZES[name])
        return unfilled(getattr(transformers, f"{family}ForCausalLM"), config)
    return decoder_of(Path(name))


def check_length(name: str | Path, module: Any, length: int) -> None:
    """Raise ImportModelError if a decoder does not support this many positions."""
    longest = getattr(module.config, "max_position_embeddings", None)
    if longest is not None and length > longest:
        raise ImportModelError(
            f"--max-length {length} is beyond the {longest} tokens that {name} knows positions of; "
            "give at most these"
        )


def check_decoder(name: str) -> None:
    """Raise ImportModelError, before any import, for a name or folder that is not a decoder."""
    if name not in SIZES and not (Path(name) / "config.json").is_file():
        raise ImportModelError(
            f"{name} is no decoder that is known here ({', '.join(SIZES)}), and no folder with "
            "config.json"
        )
