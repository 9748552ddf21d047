"""Positions of the slices that JAX's gather reads and its scatter writes.

Each index vector is the start of a slice of x along some dimensions. The dimensions of x are batch,
picked and rest: along `picked` an index counts, and all of those are merged into one number. An
index is in range if its whole slice is; the mode defines the result outside.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.jax.primitives.shape import merged
from pockengine.frontends.layout import Tensor, permute, plain, reshape

Label = tuple[str, int]
"""A dimension of the indices, or of x within a slice, by its number."""


@dataclass(frozen=True)
class IndexWindows:
    """Slices of x of the shape `sizes`, started by index vectors of rank `index_rank` - 1.

    `picked` are the dimensions that `index_map` counts along, then those that are cut short and
    start at 0; `offsets` the slice's dimensions in the result (or the updates).
    """

    shape: Shape
    sizes: Shape
    batch: tuple[int, ...]
    index_batch: tuple[int, ...]
    index_map: tuple[int, ...]
    collapsed: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def picked(self) -> list[int]:
        """Dimensions of x along which slices are smaller than x, or an index counts."""
        short = [d for d, size in enumerate(self.sizes) if size != self.shape[d]]
        remaining = [d for d in short if d not in (*self.batch, *self.index_map)]
        return [*self.index_map, *remaining]

    @property
    def picked_inside(self) -> list[int]:
        """Those of `picked` that are dimensions of the slice."""
        return [d for d in self.picked if d not in self.collapsed]

    @property
    def whole_dims(self) -> list[int]:
        """Dimensions that each slice has whole."""
        return [d for d in range(len(self.shape)) if d not in (*self.batch, *self.picked)]

    @property
    def is_line(self) -> bool:
        """Whether one index selects single elements: an IR op handles those out of bounds."""
        return len(self.picked) == 1 and not self.picked_inside

    def labels(self, index_rank: int) -> list[Label]:
        """Name the dimensions in the IR's order: batch, other indices, slice."""
        free = [d for d in range(index_rank - 1) if d not in self.index_batch]
        inside = [("slice", d) for d in (*self.picked_inside, *self.whole_dims)]
        return [*(("index", d) for d in (*self.index_batch, *free)), *inside]

    def result_labels(self, rank: int) -> list[Label]:
        """Name the dimensions of the result, or of the updates, in JAX's order."""
        gone = (*self.collapsed, *self.batch)
        slices = iter([d for d in range(len(self.shape)) if d not in gone])
        indices = iter(range(rank))
        return [
            ("slice", next(slices)) if d in self.offsets else ("index", next(indices))
            for d in range(rank)
        ]


@dataclass(frozen=True)
class FlatIndex:
    """Index vectors as one number each, (batch, count); outside x they are -1 or clamped.

    `inside` has the shape of the index vectors; None if all of them are known to be in range.
    `lead` are the sizes of the labels that count makes.
    """

    flat: Tensor
    inside: Tensor | None
    lead: tuple[int, ...]


def known(g: Builder, x: Tensor) -> np.ndarray | None:
    """Return a tensor's data if constant, also through repeats and reshapes."""
    value, shape = x.value, x.value.shape
    while value.node is not None and value.node.op in ("broadcast_to", "reshape"):
        if value.type.size != value.node.operands[0].type.size != 1:
            return None
        value = value.node.operands[0]
    data = g.graph.constants.get(value)
    if data is None:
        return None
    whole = np.broadcast_to(data, shape) if data.size == 1 else data.reshape(shape)
    return whole.transpose(np.argsort(x.layout)) if x.rank else whole


def find_places(g: Builder, index: Tensor, windows: IndexWindows, *, clamp: bool) -> FlatIndex:
    """Turn index vectors (..., k) into numbers, moved inside, or -1 for those that are not."""
    data = known(g, index)
    if data is not None:
        return _known_places(g, data, windows, clamp)
    room = _room(windows)
    parts = [_part(g, index, position) for position in range(len(room))]
    inside = _inside(g, parts, room)
    if clamp and not windows.is_line:
        parts = [_clamped(g, part, most) for part, most in zip(parts, room, strict=True)]
    flat = _total(g, parts, windows, index)
    if not clamp and not windows.is_line:
        wide = reshape(g, inside, (*inside.shape, *(1,) * len(windows.picked_inside)))
        flat = emit.elementwise(g, "where", wide, flat, emit.scalar(g, -1, flat.dtype))
    free = [d for d in range(flat.rank) if d not in windows.index_batch]
    lead = tuple(flat.shape[d] for d in (*windows.index_batch, *free))
    return FlatIndex(merged(g, flat, windows.index_batch, free), inside, lead)


def _room(windows: IndexWindows) -> list[int]:
    """Return the last start of a slice that is in bounds, for each index of a vector."""
    return [windows.shape[d] - windows.sizes[d] for d in windows.index_map]


def _known_places(g: Builder, data: np.ndarray, windows: IndexWindows, clamp: bool) -> FlatIndex:
    """As above, for indices that are known at import."""
    room = np.array(_room(windows), data.dtype)
    inside = np.all((data >= 0) & (data <= room), axis=-1)
    starts = data if windows.is_line else np.clip(data, 0, room)
    ends = (1,) * len(windows.picked_inside)
    total = np.zeros((*data.shape[:-1], *ends), data.dtype)
    for position, dim in enumerate(windows.picked):
        total = total * windows.shape[dim]
        if position < len(room):
            total = total + np.reshape(starts[..., position], (*data.shape[:-1], *ends))
        if dim in windows.picked_inside:
            line = [windows.sizes[dim] if d == dim else 1 for d in windows.picked_inside]
            total = total + np.arange(windows.sizes[dim], dtype=data.dtype).reshape(line)
    if not clamp:
        total = np.where(np.reshape(inside, (*data.shape[:-1], *ends)), total, -1)
    free = [d for d in range(total.ndim) if d not in windows.index_batch]
    moved = np.transpose(total, (*windows.index_batch, *free)).astype(data.dtype)
    batch = math.prod(total.shape[d] for d in windows.index_batch)
    flat = plain(g.constant(np.ascontiguousarray(moved.reshape(batch, -1))))
    return FlatIndex(
        flat, None if np.all(inside) else plain(g.constant(np.asarray(inside))), moved.shape
    )


def _part(g: Builder, index: Tensor, position: int) -> Tensor:
    """Return the indices along one dimension."""
    last = index.rank - 1
    return emit.squeeze(
        g, emit.slice_dim(g, index, last, start=position, stop=position + 1), [last]
    )


def _inside(g: Builder, parts: Sequence[Tensor], room: Sequence[int]) -> Tensor:
    """Return which index vectors are in range."""
    total: Tensor | None = None
    for part, most in zip(parts, room, strict=True):
        low, high = emit.arithmetic(g, "ge", part, 0), emit.arithmetic(g, "le", part, most)
        here = emit.arithmetic(g, "logical_and", low, high)
        total = here if total is None else emit.arithmetic(g, "logical_and", total, here)
    assert total is not None  # JAX emits no index vectors without elements
    return total


def _clamped(g: Builder, part: Tensor, most: int) -> Tensor:
    return emit.arithmetic(g, "minimum", emit.arithmetic(g, "maximum", part, 0), most)


def _total(g: Builder, parts: Sequence[Tensor], windows: IndexWindows, index: Tensor) -> Tensor:
    """Merge the indices along each dimension, for each place of the slice that counts."""
    lead, picked = index.shape[:-1], windows.picked_inside
    total: Tensor | None = None
    for position, dim in enumerate(windows.picked):
        part = parts[position] if position < len(parts) else None
        if dim in picked and windows.sizes[dim] > 1:
            steps = np.arange(windows.sizes[dim], dtype=index.dtype.numpy)
            line = [steps.size if d == dim else 1 for d in picked]
            step = plain(g.constant(steps.reshape([1] * len(lead) + line)))
            whole = None if part is None else reshape(g, part, (*lead, *(1,) * len(picked)))
            part = step if whole is None else emit.arithmetic(g, "add", whole, step)
        elif part is not None:
            part = reshape(g, part, (*lead, *(1,) * len(picked)))
        if total is not None:
            total = emit.arithmetic(g, "mul", total, windows.shape[dim])
            total = total if part is None else emit.arithmetic(g, "add", total, part)
        else:
            total = part
    assert total is not None  # the other dimensions are not in `picked`
    return emit.broadcast(g, total, (*lead, *(windows.sizes[d] for d in picked)))


def grouped(g: Builder, x: Tensor, windows: IndexWindows) -> Tensor:
    """Bring x to (batch, picked, rest)."""
    return merged(g, x, windows.batch, windows.picked, windows.whole_dims)


def ungrouped(g: Builder, x: Tensor, windows: IndexWindows) -> Tensor:
    """Bring (batch, picked, rest) back to x's dimensions."""
    order = [*windows.batch, *windows.picked, *windows.whole_dims]
    whole = reshape(g, x, tuple(windows.shape[d] for d in order))
    return permute(whole, [order.index(d) for d in range(len(order))])


def in_result_order(
    g: Builder, rows: Tensor, places: FlatIndex, windows: IndexWindows, index: Tensor, rank: int
) -> Tensor:
    """Bring (batch, count, rest) to the order of dimensions that JAX's result has."""
    labels = windows.labels(index.rank)
    shape = (*places.lead, *(windows.shape[d] for d in windows.whole_dims))
    order = [labels.index(label) for label in windows.result_labels(rank)]
    return permute(reshape(g, rows, shape), order)


def as_rows(g: Builder, updates: Tensor, windows: IndexWindows, index: Tensor) -> Tensor:
    """Bring updates to (batch, count, rest)."""
    labels = windows.result_labels(updates.rank)
    moved = permute(updates, [labels.index(label) for label in windows.labels(index.rank)])
    batch = math.prod(windows.shape[d] for d in windows.batch)
    width = math.prod(windows.shape[d] for d in windows.whole_dims)
    return reshape(g, moved, (batch, updates.size // batch // width, width))


def gather_windows(x: Tensor, numbers: Any, sizes: Sequence[int]) -> IndexWindows:
    """Read the parameters of a gather."""
    return IndexWindows(
        x.shape,
        tuple(int(size) for size in sizes),
        tuple(numbers.operand_batching_dims),
        index_batch=tuple(numbers.start_indices_batching_dims),
        index_map=tuple(numbers.start_index_map),
        collapsed=tuple(numbers.collapsed_slice_dims),
        offsets=tuple(numbers.offset_dims),
    )


def scatter_windows(x: Tensor, updates: Tensor, numbers: Any) -> IndexWindows:
    """Read the parameters of a scatter."""
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    windows = iter(numbers.update_window_dims)
    sizes = [1 if d in gone else updates.shape[next(windows)] for d in range(x.rank)]
    return IndexWindows(
        x.shape,
        tuple(sizes),
        tuple(numbers.operand_batching_dims),
        index_batch=tuple(numbers.scatter_indices_batching_dims),
        index_map=tuple(numbers.scatter_dims_to_operand_dims),
        collapsed=tuple(numbers.inserted_window_dims),
        offsets=tuple(numbers.update_window_dims),
    )
