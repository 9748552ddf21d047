"""Decoders by name and size, or by a folder's config.json: shapes alone, for plans of memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import ImportModelError

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
}
"""What differs from LLaMA-7B's sizes: LLaMA 2, TinyLlama, and llama2.c's stories110M."""


def shapes_of(name: str) -> Any:
    """Return a decoder with shapes only; ImportModelError lists the known names."""
    check_decoder(name)
    import transformers

    from pockengine.models.causal_lm import decoder_of
    from pockengine.models.unfilled import unfilled

    if name in SIZES:
        config = transformers.LlamaConfig(**SIZES[name])
        return unfilled(transformers.LlamaForCausalLM, config)
    return decoder_of(Path(name))


def check_decoder(name: str) -> None:
    """Raise ImportModelError for a name or folder that is no decoder's, before any import."""
    if name not in SIZES and not (Path(name) / "config.json").is_file():
        raise ImportModelError(
            f"{name} is no decoder that is known here ({', '.join(SIZES)}), and no folder with "
            "config.json"
        )
