"""What llama.cpp calls the weights of a decoder, and how it lays them out, for transformers' names.

Its LLaMA has the rows of queries and keys in another order, as its rotation takes neighbours for
pairs; that of Qwen has them as they are.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.errors import ImportModelError
from pockengine.models.gguf import read_gguf, write_gguf

WHOLE: Mapping[str, str] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_BLOCK: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
PERMUTED = ("llama", "mistral")
KNOWN = (*PERMUTED, "qwen2", "qwen3")
"""By `model_type` of config.json."""


def gguf_tensors(path: Path, config: Any) -> dict[str, Contents]:
    """Return a file's weights by transformers' names; ImportModelError for another family."""
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        raise ImportModelError(
            f"{path}: GGUF files are read of {', '.join(KNOWN)}, and config.json says {kind}; "
            "give the weights as safetensors"
        )
    file = read_gguf(path)
    names = ((name, _ours(name)) for name in file.entries)
    return {
        ours: _rows(file.contents(name), _heads(ours, config), back=True)
        for name, ours in names
        if ours is not None
    }


def write_gguf_tensors(source: Path, config: Any, new: Mapping[str, Contents], path: Path) -> None:
    """Write a file like `source` with new numbers for some of its weights."""
    file = read_gguf(source)
    changed = {
        name: _rows(new[ours], _heads(ours, config), back=False)
        for name in file.entries
        if (ours := _ours(name)) in new and ours is not None
    }
    write_gguf(path, file, changed)


def _ours(name: str) -> str | None:
    """Return transformers' name of a tensor; None for one that it has not."""
    if name in WHOLE:
        return WHOLE[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in IN_BLOCK:
        return None
    return f"model.layers.{match[1]}.{IN_BLOCK[match[2]]}.{match[3]}"


def _heads(name: str, config: Any) -> int | None:
    """Return how many heads a weight's rows are of, where their order differs."""
    if config.model_type not in PERMUTED:
        return None
    if ".q_proj." in name:
        return int(config.num_attention_heads)
    if ".k_proj." in name:
        return int(config.num_key_value_heads)
    return None


def _rows(contents: Contents, heads: int | None, back: bool) -> Contents:
    """Put a weight's rows into transformers' order, or into llama.cpp's."""
    if heads is None:
        return contents
    shape = contents.type.shape
    if not shape or shape[0] % (2 * heads):
        raise ImportModelError(f"{list(shape)} are no rows of {heads} heads; see config.json")
    half = shape[0] // heads // 2
    parts = (heads, half, 2) if back else (heads, 2, half)

    def load() -> np.ndarray:
        rows = contents.read().reshape(*parts, *shape[1:])
        return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(shape)

    return Lazy(contents.type, load, "rows in another order")
