"""Iteration spaces: collapsed dimensions, and each pointer's strides over them.

A kernel walks a space of (outer, row, column). Columns are the contiguous innermost dimension,
taken a vector at a time. Rows are the dimension above, processed in tiles, so that row-invariant
values are loaded and computed once. Outer is everything else, as one number. Dimensions are
collapsed as far as all operands allow: an addition of equal shapes has one row, a bias one outer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Strides = tuple[int, ...]


@dataclass(frozen=True)
class IterationSpace:
    """Sizes of the collapsed dimensions: outer ones, those of the rows (mostly one), columns."""

    outer: tuple[int, ...]
    row_sizes: tuple[int, ...]
    columns: int

    @property
    def outers(self) -> int:
        """Iterations of all outer dimensions together."""
        return math.prod(self.outer)

    @property
    def rows(self) -> int:
        """Rows of one outer."""
        return math.prod(self.row_sizes)

    def __str__(self) -> str:
        return "x".join(map(str, (*self.outer, *self.row_sizes, self.columns)))


def contiguous_strides(shape: Sequence[int]) -> Strides:
    """Strides, in elements, of a row-major tensor."""
    return tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))


def broadcast_strides(shape: Sequence[int], full: Sequence[int]) -> Strides:
    """Strides of a tensor read as if it had shape `full`: 0 where it is broadcast."""
    lead = len(full) - len(shape)
    own = contiguous_strides(shape)
    own_strides = (stride if size != 1 else 0 for stride, size in zip(own, shape, strict=True))
    return (0,) * lead + tuple(own_strides)


def collapse(
    sizes: Sequence[int], strides: Sequence[Strides], kinds: Sequence[object] | None = None
) -> tuple[list[int], list[Strides], list[object]]:
    """Drop dimensions of one element and merge adjacent ones that all pointers walk uniformly."""
    labels = list(kinds) if kinds is not None else [None] * len(sizes)
    merged: list[int] = []
    merged_kinds: list[object] = []
    walks: list[list[int]] = [[] for _ in strides]
    for index, size in enumerate(sizes):
        if size == 1:
            continue
        fits = all(
            walk and walk[-1] == own[index] * size for walk, own in zip(walks, strides, strict=True)
        )
        if merged and merged_kinds[-1] == labels[index] and fits:
            merged[-1] *= size
            for walk, own in zip(walks, strides, strict=True):
                walk[-1] = own[index]
        else:
            merged.append(size)
            merged_kinds.append(labels[index])
            for walk, own in zip(walks, strides, strict=True):
                walk.append(own[index])
    return merged, [tuple(walk) for walk in walks], merged_kinds


def space_of(
    sizes: Sequence[int], strides: Sequence[Strides]
) -> tuple[IterationSpace, list[Strides]]:
    """The collapsed space, and the strides padded to its rank."""
    missing = max(0, 2 - len(sizes))
    padded = [1] * missing + list(sizes)
    walks = [(0,) * missing + walk for walk in strides]
    return IterationSpace(tuple(padded[:-2]), (padded[-2],), padded[-1]), walks


def lanes_for(columns: int, widest: int) -> int:
    """The lane count with the fewest vectors per row; a partial vector counts slightly more."""
    widths = [lanes for lanes in (16, 8, 4) if lanes <= widest]

    def cost(lanes: int) -> float:
        return -(-columns // lanes) + (0.75 if columns % lanes else 0.0)

    return min(widths, key=lambda lanes: (cost(lanes), -lanes))


def by_columns(space: IterationSpace, threads: int) -> bool:
    """Whether threads should share the columns, because there are too few rows."""
    return space.outers * space.rows < 4 * threads and space.columns >= 64
