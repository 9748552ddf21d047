"""Map llama.cpp's names of a decoder's weights to transformers', and write them back."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.compiler.ir.contents import Contents
from pockengine.errors import ImportModelError
from pockengine.models.gguf import GgufFile, read_gguf, write_gguf
from pockengine.models.gguf_experts import apart, joined
from pockengine.models.gguf_families import KNOWN
from pockengine.models.gguf_layouts import laid_out

KINDS = ("weight", "bias")
UNUSED = re.compile(r"rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.nextn\..+")
"""Tensors that transformers' models lack: rotations, which config.json has, and layers that predict
further tokens."""


def gguf_tensors(path: Path, config: Any) -> dict[str, Contents]:
    """Return a file's weights by transformers' names.

    ImportModelError for another family, or a tensor that the family's model here lacks.
    """
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        raise ImportModelError(
            f"{path}: GGUF files are read of {', '.join(KNOWN)}, and config.json says {kind}; "
            "give the weights as safetensors"
        )
    file = read_gguf(path)
    names = _names(file, config)
    found = {
        ours: laid_out(file.contents(name), ours, config, back=True) for name, ours in names.items()
    }
    return joined(found, config, str(path))


def write_gguf_tensors(source: Path, config: Any, new: Mapping[str, Contents], path: Path) -> None:
    """Write a file like `source` with new numbers for some of its weights."""
    file, new = read_gguf(source), apart(new, config)
    changed = {
        name: laid_out(new[ours], ours, config, back=False)
        for name, ours in _names(file, config).items()
        if ours in new
    }
    write_gguf(path, file, changed)


def _names(file: GgufFile, config: Any) -> dict[str, str]:
    """Return transformers' names by a file's, sorted.

    So a tied embedding (token_embd) comes after the head (output).
    """
    found = {}
    for name in sorted(file.entries):
        ours = _ours(name, config)
        if ours is not None:
            found[name] = ours
        elif not UNUSED.fullmatch(name):
            raise ImportModelError(
                f"{file.path}: {name} is no weight of {config.model_type} that is known here; give "
                "the weights as safetensors, or as llama.cpp's convert_hf_to_gguf.py writes them "
                "without options"
            )
    return found


def theirs(name: str, config: Any) -> str | None:
    """Return llama.cpp's name of a weight; None if it has none."""
    family = KNOWN[config.model_type]
    whole = next((one for one, ours in family.whole.items() if ours == name), None)
    match = re.fullmatch(rf"{re.escape(family.blocks)}\.(\d+)\.(.+)", name)
    if whole is not None or match is None:
        return whole
    stem, _, kind = match[2].rpartition(".")
    for part, ours in family.in_block.items():
        if ours == match[2]:
            return f"blk.{match[1]}.{part}"
        if ours == stem and kind in KINDS:
            return f"blk.{match[1]}.{part}.{kind}"
    return None


def _ours(name: str, config: Any) -> str | None:
    """Return transformers' name of a tensor; None if it has none.

    The file may have a tied head, the embedding's own weight, a second time.
    """
    family = KNOWN[config.model_type]
    if name == "output.weight" and getattr(config, "tie_word_embeddings", False):
        return family.whole["token_embd.weight"]
    match = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
    if match is None:
        return family.whole.get(name)
    block = f"{family.blocks}.{match[1]}"
    if match[2] in family.in_block:
        return f"{block}.{family.in_block[match[2]]}"
    stem, _, kind = match[2].rpartition(".")
    ours = family.in_block.get(stem) if kind in KINDS else None
    return None if ours is None else f"{block}.{ours}.{kind}"
