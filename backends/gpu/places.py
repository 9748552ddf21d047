"""Offsets of elements as text: from an index in one space to an offset in a tensor."""

import math
from collections.abc import Sequence

from pockengine.backends.space import broadcast_strides, collapse

Shape = Sequence[int]


def coordinate(index: str, shape: Shape, axis: int) -> str:
    """Return the coordinate along an axis of element number `index` of a row-major tensor."""
    if shape[axis] == 1:
        return "0"
    below = math.prod(shape[axis + 1 :])
    above = math.prod(shape[:axis])
    text = f"{index} / {below}" if below > 1 else index
    return f"({text} % {shape[axis]})" if above > 1 else f"({text})"


def strided(index: str, sizes: Shape, strides: Shape, start: int = 0) -> str:
    """Return the offset of element number `index` of a space of `sizes` with `strides`."""
    terms = [str(start)] if start else []
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if size > 1 and stride:
            place = coordinate(index, sizes, axis)
            terms.append(place if stride == 1 else f"{place} * {stride}")
    return " + ".join(terms) or "0"


def broadcast(index: str, shape: Shape, full: Shape) -> str:
    """Return the offset in a tensor that is broadcast to shape `full`."""
    sizes, (walk,), _ = collapse(full, [broadcast_strides(shape, full)])
    return strided(index, sizes, walk)
