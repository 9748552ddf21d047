"""Map llama.cpp's names and layouts of a decoder's weights to transformers'.

llama.cpp's LLaMA, Granite and SmolLM3 order the rows of queries and keys differently, because their
rotation pairs neighbors; the other families keep the order. GPT-2's products are transposed,
Gemma's norms hold the factor itself instead of its difference from 1, and LFM2's convolutions have
two dimensions (llama.cpp's convert_hf_to_gguf.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.errors import ImportModelError
from pockengine.models.gguf import read_gguf, write_gguf
from pockengine.models.gguf_experts import apart, joined
from pockengine.models.gguf_families import KNOWN

PERMUTED = ("llama", "mistral", "smollm3", "granite")
FROM_ONE = ("gemma", "gemma2", "gemma3_text")
BARE = ("attn_sinks",)
"""Tensors whose names in transformers do not end in `.weight`."""
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def gguf_tensors(path: Path, config: Any) -> dict[str, Contents]:
    """Return a file's weights by transformers' names; ImportModelError for another family."""
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        raise ImportModelError(
            f"{path}: GGUF files are read of {', '.join(KNOWN)}, and config.json says {kind}; "
            "give the weights as safetensors"
        )
    file = read_gguf(path)
    # Sorted, so that a tied embedding (token_embd) overrides the head (output).
    names = ((name, _ours(name, config)) for name in sorted(file.entries))
    found = {
        ours: laid_out(file.contents(name), ours, config, back=True)
        for name, ours in names
        if ours is not None
    }
    return joined(found, config, str(path))


def write_gguf_tensors(source: Path, config: Any, new: Mapping[str, Contents], path: Path) -> None:
    """Write a file like `source` with new numbers for some of its weights."""
    file, new = read_gguf(source), apart(new, config)
    changed = {
        name: laid_out(new[ours], ours, config, back=False)
        for name in file.entries
        if (ours := _ours(name, config)) in new and ours is not None
    }
    write_gguf(path, file, changed)


def theirs(name: str, config: Any) -> str | None:
    """Return llama.cpp's name of a weight; None if it has none."""
    family = KNOWN[config.model_type]
    whole = next((one for one, ours in family.whole.items() if ours == name), None)
    match = re.fullmatch(rf"{re.escape(family.blocks)}\.(\d+)\.(.+)\.(weight|bias)", name)
    if whole is not None or match is None:
        return whole
    part = next((one for one, ours in family.in_block.items() if ours == match[2]), None)
    return None if part is None else f"blk.{match[1]}.{part}.{match[3]}"


def _ours(name: str, config: Any) -> str | None:
    """Return transformers' name of a tensor; None if it has none.

    The file may have a tied head, the embedding's own weight, a second time.
    """
    family = KNOWN[config.model_type]
    if name == "output.weight" and getattr(config, "tie_word_embeddings", False):
        return family.whole["token_embd.weight"]
    if name in family.whole:
        return family.whole[name]
    match = re.fullmatch(r"blk\.(\d+)\.([\w.]+)\.(weight|bias)", name)
    if match is None or match[2] not in family.in_block:
        return None
    ours = f"{family.blocks}.{match[1]}.{family.in_block[match[2]]}"
    return ours if match[2] in BARE else f"{ours}.{match[3]}"


def laid_out(contents: Contents, name: str, config: Any, back: bool) -> Contents:
    """Convert a weight to the layout of llama.cpp, or with `back` to that of transformers."""
    kind, type_ = config.model_type, contents.type
    if kind in PERMUTED:
        return rows_laid_out(contents, name, config, back)
    if kind in FROM_ONE and name.endswith("norm.weight"):
        one = np.float32(-1 if back else 1)
        return Lazy(type_, lambda: contents.read() + one, "a norm's scale")
    if kind == "lfm2" and name.endswith(".conv.conv.weight") and len(type_.shape) == 3 - back:
        channels, length = type_.shape[0], type_.shape[-1]
        shape = (channels, 1, length) if back else (channels, length)
        return Lazy(TensorType(F32, shape), lambda: contents.read().reshape(shape), "a convolution")
    if kind == "gpt2" and name.endswith(TRANSPOSED) and len(type_.shape) == 2:
        if isinstance(contents, Grid):
            return contents.transposed((1, 0))
        turned = TensorType(type_.dtype, tuple(reversed(type_.shape)))
        return Lazy(turned, lambda: np.ascontiguousarray(contents.read().T), "a transposed weight")
    return contents


def _heads(name: str, config: Any) -> int | None:
    """Return the number of heads of a weight whose rows are reordered, else None."""
    if ".q_proj." in name:
        return int(config.num_attention_heads)
    if ".k_proj." in name:
        return int(config.num_key_value_heads)
    return None


def rows_laid_out(contents: Contents, name: str, config: Any, back: bool) -> Contents:
    """Convert a weight's rows to llama.cpp's order, or with `back` to transformers'."""
    heads = _heads(name, config) if config.model_type in PERMUTED else None
    if heads is None:
        return contents
    shape = contents.type.shape
    if not shape or shape[0] % (2 * heads):
        raise ImportModelError(f"{list(shape)} are no rows of {heads} heads; see config.json")
    half = shape[0] // heads // 2
    parts = (heads, half, 2) if back else (heads, 2, half)

    def ordered(array: np.ndarray) -> np.ndarray:
        rows = array.reshape(*parts, *array.shape[1:])
        return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(array.shape)

    if isinstance(contents, Grid) and contents.axis % len(shape):  # each row has its own scales
        return contents.reordered(ordered)
    return Lazy(contents.type, lambda: ordered(contents.read()), "rows in another order")
