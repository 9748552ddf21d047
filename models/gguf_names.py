"""Map llama.cpp's names of a decoder's weights to transformers', and write them back."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.types import Shape
from pockengine.errors import ImportModelError
from pockengine.models.gguf import GgufFile, read_gguf, write_gguf
from pockengine.models.gguf_experts import apart, joined
from pockengine.models.gguf_families import KNOWN, names_of
from pockengine.models.gguf_layouts import laid_out
from pockengine.models.gguf_linear import apart_heads, joined_heads

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
    found |= {number.name: number.contents(file) for number in _in_keys(file, config)}
    return joined_heads(joined(found, config, str(path)), config, str(path))


def write_gguf_tensors(source: Path, config: Any, new: Mapping[str, Contents], path: Path) -> None:
    """Write a file like `source` with new numbers for some of its weights."""
    file = read_gguf(source)
    names = _names(file, config)
    whole = {ours: new[ours] for ours in names.values() if ours in new}
    split = {ours: contents for ours, contents in new.items() if ours not in whole}
    new = {**apart_heads(apart(split, config), config), **whole}
    changed = {
        name: laid_out(new[ours], ours, config, back=False)
        for name, ours in names.items()
        if ours in new
    }
    for number in _in_keys(file, config):
        if number.name in new:
            file = number.replaced(file, new[number.name])
    write_gguf(path, file, changed)


@dataclass(frozen=True)
class _KeyNumber:
    """A weight by transformers' name that is the number at `place` of a key's list."""

    name: str
    shape: Shape
    key: str
    place: int

    def contents(self, file: GgufFile) -> Contents:
        return InMemory(file.numbers(self.key)[self.place].reshape(self.shape))

    def replaced(self, file: GgufFile, new: Contents) -> GgufFile:
        numbers = file.numbers(self.key).copy()
        numbers[self.place] = new.read().item()
        return file.with_numbers(self.key, numbers)


def _in_keys(file: GgufFile, config: Any) -> Iterator[_KeyNumber]:
    family = names_of(config)
    for key, (name, shape) in family.keys.items():
        for block in range(len(file.numbers(key))):
            yield _KeyNumber(f"{family.blocks}.{block}.{name}", shape, key, place=block)


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
    family = names_of(config)
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
    family = names_of(config)
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
