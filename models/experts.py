"""Experts of a mixture: files have a tensor for each, models of transformers 5 one for all.

transformers' `conversion_mapping` names the same pairs: of each expert the gate's rows come before
those of the other product, and experts are the first dimension.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from pockengine.compiler.ir.contents import Contents, Lazy
from pockengine.compiler.ir.grids import Grid, on_one_grid
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.errors import GraphError

STACKED: Mapping[str, Sequence[Sequence[str]]] = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
"""A model's names -> the tensors of an expert in order, in one of several spellings."""
_EXPERT = re.compile(r"(.+\.experts)\.0\.(\w+)\.weight")


def experts_of(weights: Mapping[str, Contents]) -> dict[str, list[list[str]]]:
    """Return the files' names by the model's: those of each expert, in order."""
    found: dict[str, list[list[str]]] = {}
    for match in filter(None, map(_EXPERT.fullmatch, weights)):
        for stacked, spellings in STACKED.items():
            for parts in spellings:
                if match[2] == parts[0]:
                    found[f"{match[1]}.{stacked}"] = _experts(weights, match[1], parts)
    return found


def _experts(weights: Mapping[str, Contents], place: str, parts: Sequence[str]) -> list[list[str]]:
    """Return the names of each expert up to the first that lacks a part."""
    found: list[list[str]] = []
    while True:
        names = [f"{place}.{len(found)}.{part}.weight" for part in parts]
        if not all(name in weights for name in names):
            return found
        found.append(names)


def stacked(weights: Mapping[str, Contents]) -> dict[str, Contents]:
    """Return one weight for the experts of each layer, read on demand."""
    return {
        name: _stack([[weights[part] for part in parts] for parts in experts], name)
        for name, experts in experts_of(weights).items()
        if experts
    }


def _stack(experts: Sequence[Sequence[Contents]], name: str) -> Contents:
    shapes = [part.type.shape for part in experts[0]]
    for place, parts in enumerate(experts):
        found = [part.type.shape for part in parts]
        alike = found == shapes and [len(size) for size in {shape[1:] for shape in found}] == [1]
        if not alike or not all(part.type.dtype.is_float for part in parts):
            raise GraphError(
                f"{name}: the weights of expert {place} are {[str(part.type) for part in parts]}; "
                "all experts need matrices of floats of the same shapes"
            )
    rows = sum(shape[0] for shape in shapes)
    type_ = TensorType(F32, (len(experts), rows, shapes[0][1]))
    grids = [part for parts in experts for part in parts if isinstance(part, Grid)]
    count = len(experts[0])

    def stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([np.concatenate(row) for row in _rows_of(arrays, count)])

    if len(grids) == len(experts) * count:
        return on_one_grid(grids, type_, grids[0].axis + 1, stack)

    def load() -> np.ndarray:
        whole = np.empty(type_.shape, np.float32)
        for place, parts in enumerate(experts):
            np.concatenate([numbers_of(part.read()) for part in parts], out=whole[place])
        return whole

    return Lazy(type_, load, name)


def _rows_of(arrays: Sequence[np.ndarray], count: int) -> list[Sequence[np.ndarray]]:
    return [arrays[first : first + count] for first in range(0, len(arrays), count)]


def separate(new: Mapping[str, Contents], weights: Mapping[str, Contents]) -> dict[str, Contents]:
    """Return new weights by the files' names: those of all experts one by one.

    Files alternate between a layer's stacks, so the last two stay in memory.
    """
    found = dict(new)

    @lru_cache(maxsize=len(STACKED))
    def stack(name: str) -> np.ndarray:
        return numbers_of(new[name].read())

    for name, experts in experts_of(weights).items():
        if found.pop(name, None) is None:
            continue
        for place, parts in enumerate(experts):
            first = 0
            for part in parts:
                shape = weights[part].type.shape
                load = _slice(partial(stack, name), place, first, shape[0])
                found[part] = Lazy(TensorType(F32, shape), load, part)
                first += shape[0]
    return found


def _slice(
    stack: Callable[[], np.ndarray], place: int, first: int, count: int
) -> Callable[[], np.ndarray]:
    return lambda: stack()[place, first : first + count]
