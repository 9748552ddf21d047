"""Sparse tensors of a TFLite file, as dense arrays.

A tensor's dimensions, split into blocks where there are such, are stored one within another; each
is dense, or lists for every position of those around it the indices that it holds (CSR).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from pockengine.errors import ImportModelError
from pockengine.frontends.bounds import MAX_ELEMENTS

_INDICES = {
    schema.SparseIndexVector.Int32Vector: schema.Int32Vector,
    schema.SparseIndexVector.Uint16Vector: schema.Uint16Vector,
    schema.SparseIndexVector.Uint8Vector: schema.Uint8Vector,
}


@dataclass(frozen=True)
class _Level:
    """One stored dimension: its size where it is dense, else its segments and indices."""

    size: int
    segments: np.ndarray | None = None
    indices: np.ndarray | None = None

    def within(self, outer: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each position here the row of `outer` around it, its index and its place."""
        if self.segments is None or self.indices is None:
            counts, starts = np.full(outer.size, self.size), outer * self.size
        else:
            starts = self.segments[outer]
            counts = self.segments[outer + 1] - starts
        if counts.sum() > MAX_ELEMENTS:
            raise ImportModelError(f"a sparse tensor of {counts.sum()} elements")
        rows = np.repeat(np.arange(outer.size), counts)
        inner = np.arange(rows.size) - (np.cumsum(counts) - counts)[rows]
        places = starts[rows] + inner
        return rows, inner if self.indices is None else self.indices[places], places


def dense(values: np.ndarray, shape: tuple[int, ...], sparsity: Any) -> np.ndarray:
    """Return the dense array of this shape; zeros where no value is stored."""
    size = int(np.prod(shape, dtype=np.int64))
    if not 0 <= size <= MAX_ELEMENTS:
        raise ImportModelError(f"a sparse tensor of {list(shape)}, which is too large")
    order, blocked = (
        _numbers(sparsity.TraversalOrderAsNumpy()),
        _numbers(sparsity.BlockMapAsNumpy()),
    )
    levels = dict(zip(order.tolist(), _levels(sparsity), strict=True))
    if sorted(levels) != list(range(len(shape) + blocked.size)):
        raise ImportModelError("a sparse tensor whose dimensions do not fit its shape")
    place, index = np.zeros(1, np.int64), dict[int, np.ndarray]()
    for dim, level in levels.items():
        rows, own, place = level.within(place)
        index = {known: places[rows] for known, places in index.items()} | {dim: own}
    for number, dim in enumerate(blocked.tolist(), start=len(shape)):
        index[dim] = index[dim] * levels[number].size + index[number]
    whole = np.zeros(shape, values.dtype)
    whole[_within(index, shape)] = values[place]
    return whole


def _within(index: dict[int, np.ndarray], shape: Sequence[int]) -> tuple[np.ndarray, ...]:
    places = tuple(index[dim] for dim in range(len(shape)))
    if any(place.size and place.min() < 0 for place in places):
        raise ImportModelError("a sparse tensor with negative indices")
    return places


def _numbers(array: Any) -> np.ndarray:
    return np.asarray(array if isinstance(array, np.ndarray) else [], np.int64)


def _levels(sparsity: Any) -> Iterator[_Level]:
    for number in range(sparsity.DimMetadataLength()):
        level = sparsity.DimMetadata(number)
        if level.Format() == schema.DimensionType.DENSE:
            yield _Level(level.DenseSize())
        else:
            segments = _vector(level.ArraySegmentsType(), level.ArraySegments())
            yield _Level(0, segments, _vector(level.ArrayIndicesType(), level.ArrayIndices()))


def _vector(kind: int, table: Any) -> np.ndarray:
    vector = _INDICES[kind]()
    vector.Init(table.Bytes, table.Pos)
    return _numbers(vector.ValuesAsNumpy())
