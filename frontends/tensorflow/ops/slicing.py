"""Slices of TensorFlow, whose starts may be data as long as their sizes are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import I32, I64, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.index import wrapped
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.slices import put_at
from pockengine.frontends.layout import Tensor, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, Truths, integers, tf_op
from pockengine.frontends.tensorflow.ops.truths import first_place

MOST_COMPARED = 6
"""Steps back from an element to its source, such as i[0] of i."""

Place = int | Tensor
"""Where a slice starts or ends: a number, or a tensor of rank 0."""

OPEN = (
    "a slice whose size depends on data; let both ends differ by a number, as in x[i:i + 3], or "
    "use tf.slice with a known size"
)


@dataclass(frozen=True)
class DynamicSpan:
    """A constant number of elements from a data-dependent start, which is assumed to be in
    range."""

    start: Tensor
    size: int


@tf_op("Slice", static=(2,), either=(1,))
def slice_(ctx: TfContext, x: Tensor, begin: np.ndarray | Tensor, sizes: np.ndarray) -> Tensor:
    """Take a number of elements of each dimension from a start; -1 means all remaining ones."""
    index: list[Any] = []
    for start, size, whole in zip(_places(ctx.g, begin), integers(sizes), x.shape, strict=True):
        if isinstance(start, int):
            index.append(slice(start, whole if size == -1 else start + size))
        elif size == -1:
            raise Unsupported(OPEN)
        else:
            index.append(slice(None) if size == whole else DynamicSpan(start, size))
    return _indexed(ctx, x, index)


@tf_op("XlaDynamicUpdateSlice", either=(2,))
def update_slice(ctx: TfContext, x: Tensor, update: Tensor, begin: np.ndarray | Tensor) -> Tensor:
    """Replace a slice whose start may be data; it is moved to be in bounds."""
    starts = {}
    for dim, start in enumerate(_places(ctx.g, begin)):
        most = x.shape[dim] - update.shape[dim]
        if isinstance(start, int):
            starts[dim] = emit.scalar(ctx.g, min(max(start, 0), most), I32)
        else:
            inside = emit.arithmetic(ctx.g, "maximum", start, 0)
            starts[dim] = emit.arithmetic(ctx.g, "minimum", inside, most)
    moving = {dim: start for dim, start in starts.items() if update.shape[dim] != x.shape[dim]}
    return put_at(ctx.g, x, update, moving)


@tf_op("StridedSlice", static=(3,), either=(1, 2))
def strided_slice(
    ctx: TfContext,
    x: Tensor | Truths,
    begin: np.ndarray | Tensor,
    end: np.ndarray | Tensor,
    strides: np.ndarray,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Tensor | Truths:
    """x[...] with slices, numbers, new axes and an ellipsis, selected by the bits of the masks."""
    index: list[Any] = []
    ends = _places(ctx.g, begin), _places(ctx.g, end)
    for i, (first, last, step) in enumerate(zip(*ends, integers(strides), strict=True)):
        if ellipsis_mask >> i & 1:
            index.append(Ellipsis)
        elif new_axis_mask >> i & 1:
            index.append(None)
        elif shrink_axis_mask >> i & 1:
            index.append(first)
        else:
            low = None if begin_mask >> i & 1 else first
            high = None if end_mask >> i & 1 else last
            index.append(_part(ctx.g, low, high, step))
    return first_place(ctx.g, x, index) if isinstance(x, Truths) else _indexed(ctx, x, index)


def _part(g: Builder, low: Place | None, high: Place | None, step: int) -> slice | DynamicSpan:
    """Return a slice, or a span where its start is data."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        return slice(low, high, step)
    if not isinstance(low, Tensor) or not isinstance(high, Tensor) or step != 1:
        raise Unsupported(OPEN)
    (base, start), (other, stop) = _steps_from(g, low.value), _steps_from(g, high.value)
    if not _alike(base, other):
        raise Unsupported(OPEN)
    if stop <= start:
        raise Unsupported(f"a slice of {stop - start} elements; it must have some")
    return DynamicSpan(low, stop - start)


def _places(g: Builder, indices: np.ndarray | Tensor) -> list[Place]:
    """Read the elements of a vector one by one; constant ones as numbers."""
    if isinstance(indices, np.ndarray):
        return list(integers(indices))
    return [_element(g, indices.value, i) for i in range(indices.size)]


def _element(g: Builder, value: Value, i: int) -> Place:
    """Return one element of a vector, found in the parts of the vector."""
    known = g.graph.constants.get(value)
    if known is not None:
        return int(known.flat[i])
    node = value.node
    if node is not None and node.op == "reshape":
        return _element(g, node.operands[0], i)
    if node is not None and node.op == "concat" and len(value.shape) == 1:
        for part in node.operands:
            if i < part.type.size:
                return _element(g, part, i)
            i -= part.type.size
    if not value.shape:
        return plain(value)
    flat = reshape(g, plain(value), (value.type.size,))
    return emit.squeeze(g, emit.slice_dim(g, flat, 0, start=i, stop=i + 1), [0])


def _steps_from(g: Builder, value: Value) -> tuple[Value, int]:
    """Split a number into a value and the sum of the constants added to it."""
    node = value.node
    if node is None or any(operand.dtype not in (I32, I64) for operand in node.operands):
        return value, 0
    if node.op in ("cast", "reshape"):
        return _steps_from(g, node.operands[0])
    if node.op not in ("add", "sub"):
        return value, 0
    left, right = (g.graph.constants.get(operand) for operand in node.operands)
    if right is not None:
        base, steps = _steps_from(g, node.operands[0])
        return base, steps + (int(right) if node.op == "add" else -int(right))
    if left is not None and node.op == "add":
        base, steps = _steps_from(g, node.operands[1])
        return base, steps + int(left)
    return value, 0


def _alike(a: Value, b: Value, depth: int = MOST_COMPARED) -> bool:
    """Return whether two values are identical, or computed in the same way from the same values."""
    if a is b:
        return True
    if not depth or a.node is None or b.node is None:
        return False
    if (a.node.op, a.node.attrs, a.type) != (b.node.op, b.node.attrs, b.type):
        return False
    pairs = zip(a.node.operands, b.node.operands, strict=True)
    return all(_alike(*pair, depth - 1) for pair in pairs)


def _indexed(ctx: TfContext, x: Tensor, index: Sequence[Any]) -> Tensor:
    """Index as NumPy does."""
    count = sum(part is not None and part is not Ellipsis for part in index)
    others = [slice(None)] * (x.rank - count)
    at = next((i for i, part in enumerate(index) if part is Ellipsis), len(index))
    target: list[int] = []
    dim = 0
    for part in [*index[:at], *others, *index[at + 1 :]]:
        if part is None:
            target.append(1)
            continue
        x = _taken(ctx, x, dim, part)
        if isinstance(part, (slice, DynamicSpan)):
            target.append(x.shape[dim])
        dim += 1
    return reshape(ctx.g, x, tuple(target))


def _taken(ctx: TfContext, x: Tensor, dim: int, part: slice | DynamicSpan | Place) -> Tensor:
    """Take a part of one dimension, which stays."""
    if isinstance(part, slice):
        return _sliced(ctx, x, dim, part)
    if isinstance(part, int):
        place = part % x.shape[dim]
        return emit.slice_dim(ctx.g, x, dim, start=place, stop=place + 1)
    span = part if isinstance(part, DynamicSpan) else DynamicSpan(part, 1)
    if span.size > x.shape[dim]:
        raise Unsupported(f"a slice of {span.size} elements of {x.shape[dim]}")
    first = wrapped(ctx.g, span.start, x.shape[dim])
    steps = plain(ctx.g.constant(np.arange(span.size, dtype=first.dtype.numpy)))
    places = emit.elementwise(ctx.g, "add", first, steps)
    return Tensor(ctx.g.take(x.value, places.value, axis=x.axis(dim)), x.layout)


def _sliced(ctx: TfContext, x: Tensor, dim: int, part: slice) -> Tensor:
    places = range(*part.indices(x.shape[dim]))
    if not places:
        raise Unsupported(f"the slice {part} of {list(x.shape)}, which is empty")
    low, high = sorted((places[0], places[-1]))
    x = emit.slice_dim(ctx.g, x, dim, start=low, stop=high + 1, step=abs(places.step))
    if places.step < 0:
        x = Tensor(ctx.g.reverse(x.value, axes=(x.axis(dim),)), x.layout)
    return x
