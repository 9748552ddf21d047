"""Experts of mixtures in GGUF: the gate and the other product are tensors [experts, out, in].

Models of transformers have one weight for both. Qwen3-MoE has the gate's rows before the others;
gpt-oss alternates them, and its weights are [experts, in, out].
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid, on_one_grid
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.errors import ImportModelError

ALTERNATING = ("gpt_oss",)
"""Families whose gates alternate with the other products."""
_APART = re.compile(r"(.+\.experts)\.(gate|down)_proj\.(weight|bias)")
_JOINED = re.compile(r"(.+\.experts)\.(gate_up|down)_proj(_bias)?")
_TURNED = (0, 2, 1)


def joined(weights: Mapping[str, Contents], config: Any, path: str) -> dict[str, Contents]:
    """Return transformers' weights of experts for those of a file."""
    found = dict(weights)
    for match in filter(None, map(_APART.fullmatch, weights)):
        place, part, kind = match.groups()
        parts = [found.pop(match[0])]
        if len(parts[0].type.shape) not in (2, 3):
            raise ImportModelError(
                f"{path}: {match[0]} is {parts[0].type}, without a dimension of experts; convert "
                "the model again"
            )
        if part == "gate":
            other = found.pop(f"{place}.up_proj.{kind}", None)
            if other is None or other.type != parts[0].type:
                raise ImportModelError(
                    f"{path}: the gates of {place} are {parts[0].type}, their other products "
                    f"{other and other.type}; convert the model again"
                )
            parts.append(other)
        end = "" if kind == "weight" else "_bias"
        whole = _whole(parts, config.model_type in ALTERNATING)
        found[f"{place}.{'gate_up' if part == 'gate' else part}_proj{end}"] = whole
    return found


def _whole(parts: Sequence[Contents], alternating: bool) -> Contents:
    """Join weights along the outputs."""
    experts, rows, *columns = parts[0].type.shape
    type_ = TensorType(F32, (experts, rows * len(parts), *columns))
    turn = alternating and bool(columns)

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        if alternating:
            return np.stack(arrays, 2).reshape(len(arrays[0]), -1, *arrays[0].shape[2:])
        return np.concatenate(arrays, 1)

    grids = [part for part in parts if isinstance(part, Grid)]
    if len(grids) == len(parts) and columns:
        grid = on_one_grid(grids, type_, grids[0].axis, join)
        return grid.transposed(_TURNED) if turn else grid

    def load() -> np.ndarray:
        numbers = join([numbers_of(part.read()) for part in parts])
        return np.ascontiguousarray(numbers.transpose(_TURNED)) if turn else numbers

    turned = type_.transposed(_TURNED) if turn else type_
    return Lazy(turned, load, "experts of a layer")


def apart(new: Mapping[str, Contents], config: Any) -> dict[str, Contents]:
    """Return a file's weights of experts for those of transformers."""
    found = dict(new)
    alternating = config.model_type in ALTERNATING
    for match in filter(None, map(_JOINED.fullmatch, new)):
        whole, kind = found.pop(match[0]), "bias" if match[3] else "weight"
        names = match[2].split("_")
        for place, name in enumerate(names):
            turn = alternating and kind == "weight"
            part = _part(whole, turn, partial(_rows, place, len(names), alternating))
            found[f"{match[1]}.{name}_proj.{kind}"] = part
    return found


def _part(whole: Contents, turn: bool, rows: Callable[[int], slice]) -> Lazy:
    type_ = whole.type.transposed(_TURNED) if turn else whole.type
    chosen = rows(type_.shape[1])
    count = len(range(*chosen.indices(type_.shape[1])))

    def load() -> np.ndarray:
        array = numbers_of(whole.read())
        return np.ascontiguousarray((array.transpose(_TURNED) if turn else array)[:, chosen])

    shape = (type_.shape[0], count, *type_.shape[2:])
    return Lazy(TensorType(F32, shape), load, "experts of a layer")


def _rows(place: int, parts: int, alternating: bool, count: int) -> slice:
    """Return the rows of a part of a joined weight."""
    if alternating:
        return slice(place, None, parts)
    each = count // parts
    return slice(place * each, (place + 1) * each)
