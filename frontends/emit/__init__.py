"""Emit a channels-first framework's operations as our ops: elementwise, shapes, reductions.

Functions take and return `Tensor`s, with dimensions in the framework's numbering; they choose the
layout that moves least. `nn.py` has the operations of neural nets. No framework is imported.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pockengine.compiler.ir import BOOL, F32, I32, I64, Builder, DType, Shape, Value
from pockengine.compiler.ops.custom import is_variable
from pockengine.compiler.ops.elementwise import STOP
from pockengine.frontends.layout import (
    Layout,
    Tensor,
    aligned,
    framework_order,
    identity,
    plain,
    stored,
)

Number = bool | int | float
Operand = Tensor | Number

# A float beats any integer, an integer beats bool; among integers the wider wins.
_PRIORITY = (BOOL, I32, I64, F32)


MOST_COUNTED = 1 << 24
"""A float counts so far without a gap."""


def cast(g: Builder, x: Tensor, dtype: DType) -> Tensor:
    """Convert the elements, unless they have this type."""
    return x if x.dtype is dtype else Tensor(g.cast(x.value, dtype=dtype.value), x.layout)


def scalar(g: Builder, number: Number, dtype: DType) -> Tensor:
    """Return a constant of rank 0."""
    return Tensor(g.scalar(number, dtype), ())


def common_dtype(operands: Sequence[Operand]) -> DType:
    """Return the common arithmetic type of these operands: a number only raises the kind."""
    dtypes = [operand.dtype for operand in operands if isinstance(operand, Tensor)]
    best = max(dtypes, key=_PRIORITY.index, default=BOOL)
    for operand in operands:
        if isinstance(operand, float):
            best = F32
        elif isinstance(operand, int) and not isinstance(operand, bool) and best is BOOL:
            best = I64
    return best


def same_dtype(g: Builder, operands: Sequence[Operand]) -> list[Tensor]:
    """Bring tensors and numbers to their common type."""
    dtype = common_dtype(operands)
    return [
        cast(g, operand, dtype) if isinstance(operand, Tensor) else scalar(g, operand, dtype)
        for operand in operands
    ]


def elementwise(g: Builder, op: str, *operands: Tensor, **attrs: Any) -> Tensor:
    """Apply an elementwise op with the framework's broadcasting.

    The largest operand decides the layout: smaller operands are transposed instead.
    """
    lead = max(operands, key=lambda x: (x.rank, x.value.type.size, x.layout != identity(x.rank)))
    values = [aligned(g, operand, lead.layout) for operand in operands]
    return Tensor(g.emit(op, *values, **attrs).result, lead.layout)


def arithmetic(g: Builder, op: str, *operands: Operand) -> Tensor:
    """Apply an elementwise op to tensors and numbers after bringing them to one type."""
    return elementwise(g, op, *same_dtype(g, operands))


def choose(g: Builder, condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """Select a where the condition holds, else b, at their common type."""
    return elementwise(g, "where", condition, *same_dtype(g, (a, b)))


def number(g: Builder, x: Tensor) -> Number | None:
    """Return the number that a constant of one element is."""
    data = g.graph.constants.get(x.value)
    known: Number | None = data.item() if data is not None and data.size == 1 else None
    return known


def reduce(g: Builder, op: str, x: Tensor, dims: Sequence[int], keepdims: bool) -> Tensor:
    """Reduce over the framework's dimensions; by default all.

    Masks are counted in floats, exactly, as no backend reduces anything else.
    """
    if _is_mask(x) and x.size <= MOST_COUNTED:
        counted = reduce(g, op, cast(g, x, F32), dims=dims, keepdims=keepdims)
        return cast(g, counted, x.dtype)
    gone = sorted({dim % x.rank for dim in dims}) if dims and x.rank else list(range(x.rank))
    axes = tuple(sorted(x.axis(dim) for dim in gone))
    value = g.emit(op, x.value, axes=axes, keepdims=keepdims).result if axes else x.value
    if keepdims:
        return Tensor(value, x.layout)
    remaining = [dim for dim in range(x.rank) if dim not in gone]
    return Tensor(value, tuple(remaining.index(dim) for dim in x.layout if dim in remaining))


def log_sum_exp(g: Builder, x: Tensor, dims: Sequence[int], keepdims: bool) -> Tensor:
    """log(sum(exp(x))), computed from the maximum on, unless that is infinite."""
    top = reduce(g, "reduce_max", x, dims, keepdims=True)
    endless = arithmetic(g, "eq", unary("abs")(g, top), math.inf)
    top = choose(g, endless, 0.0, top)
    top = unary("stop_gradient")(g, top)  # its share of the gradient cancels
    powers = unary("exp")(g, arithmetic(g, "sub", x, top))
    total = reduce(g, "reduce_sum", powers, dims, keepdims=True)
    y = arithmetic(g, "add", unary("log")(g, total), top)
    return y if keepdims else squeeze(g, y, dims)


def _is_mask(x: Tensor) -> bool:
    """Return whether these are booleans, or integers that were booleans."""
    node = x.value.node
    was = node.operands[0].dtype if node is not None and node.op == "cast" else x.dtype
    return x.dtype is not F32 and was is BOOL


def along_last(g: Builder, op: str, x: Tensor, dim: int) -> Tensor:
    """Apply an op along our last axis, such as softmax, to dimension `dim`."""
    if not x.rank:
        line = plain(g.reshape(x.value, shape=(1,)))
        return squeeze(g, along_last(g, op, line, 0), [0])
    dim %= x.rank
    layout = (*(other for other in x.layout if other != dim), dim)
    return Tensor(g.emit(op, stored(g, x, layout)).result, layout)


def concat(g: Builder, parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate along `dim`, in the layout of the largest part."""
    parts = same_dtype(g, parts)
    layout = max(parts, key=lambda part: part.value.type.size).layout
    values = [stored(g, part, layout) for part in parts]
    if len(values) == 1:
        return Tensor(values[0], layout)
    axis = layout.index(dim % len(layout))
    return Tensor(g.emit("concat", *values, axis=axis).result, layout)


def pad(g: Builder, x: Tensor, low: Shape, high: Shape, value: float) -> Tensor:
    """Pad by a constant; a negative size cuts instead."""
    cut = [max(-before, 0) for before in low]
    stop = [size - max(-after, 0) for size, after in zip(x.shape, high, strict=True)]
    x = slice_(g, x, start=tuple(cut), stop=tuple(stop), step=(1,) * x.rank)
    widths = [[max(size, 0) for size in side] for side in (low, high)]
    if not any(widths[0] + widths[1]):
        return x
    ours = [tuple(side[dim] for dim in x.layout) for side in widths]
    return Tensor(g.pad(x.value, low=ours[0], high=ours[1], value=float(value)), x.layout)


def slice_(g: Builder, x: Tensor, start: Shape, stop: Shape, step: Shape) -> Tensor:
    """Take start:stop:step of each of the framework's dimensions, all of them in range."""
    if start == (0,) * x.rank and stop == x.shape and step == (1,) * x.rank:
        return x
    ours = [tuple(side[dim] for dim in x.layout) for side in (start, stop, step)]
    return Tensor(g.slice(x.value, start=ours[0], stop=ours[1], step=ours[2]), x.layout)


def slice_dim(g: Builder, x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """Take start:stop:step of one dimension."""
    starts, stops, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    dim %= x.rank
    starts[dim], stops[dim], steps[dim] = start, stop, step
    return slice_(g, x, start=tuple(starts), stop=tuple(stops), step=tuple(steps))


def squeeze(g: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Drop these dimensions, each of size 1, in whatever layout."""
    gone = {dim % x.rank for dim in dims} if x.rank else set()  # a scalar's only dimension, 0
    if not gone:
        return x
    remaining = [dim for dim in range(x.rank) if dim not in gone]
    shape = x.shape
    order = [dim for dim in x.layout if dim in remaining]
    value = g.reshape(x.value, shape=tuple(shape[dim] for dim in order))
    return Tensor(value, tuple(remaining.index(dim) for dim in order))


def broadcast(g: Builder, x: Tensor, shape: Shape) -> Tensor:
    """Repeat dimensions of size 1, and new leading ones, up to `shape`."""
    if shape == x.shape:
        return x
    lead = len(shape) - x.rank
    layout: Layout = (*range(lead), *(dim + lead for dim in x.layout))
    target = tuple(shape[dim] for dim in layout)
    return Tensor(g.broadcast_to(x.value, shape=target), layout)


def matmul(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices as NumPy does, vectors and batches included.

    A transposed operand costs nothing; a plain matrix on the right takes all rows in one product.
    """
    if a.rank == 1:
        row = plain(g.reshape(a.value, shape=(1, *a.shape)))
        return squeeze(g, matmul(g, row, b), [-2 if b.rank > 1 else 0])
    if b.rank == 1:
        column = plain(g.reshape(b.value, shape=(*b.shape, 1)))
        return squeeze(g, matmul(g, a, column), [-1])
    if b.rank == 2 and a.rank > 2:
        *lead, inner = a.shape
        rows = plain(g.reshape(framework_order(g, a), shape=(a.value.type.size // inner, inner)))
        product = matmul(g, rows, b)
        return plain(g.reshape(product.value, shape=(*lead, b.shape[1])))
    left, transpose_a = _matrix(g, a)
    right, transpose_b = _matrix(g, b)
    return plain(g.matmul(left, right, transpose_a=transpose_a, transpose_b=transpose_b))


def _matrix(g: Builder, x: Tensor) -> tuple[Value, bool]:
    """Return the value of a batch of matrices, and whether its last two axes are swapped."""
    batch = identity(x.rank - 2)
    swapped = (*batch, x.rank - 1, x.rank - 2)
    if x.layout == swapped:
        return x.value, True
    return framework_order(g, x), False


def weighted(g: Builder, y: Tensor, factor: float) -> Tensor:
    """Multiply by a number, unless it is one."""
    return y if factor == 1 else arithmetic(g, "mul", y, factor)


def trains(g: Builder, x: Tensor) -> bool:
    """Return whether a trainable parameter, or a variable of a derivative, has a part in it."""
    seen: set[Value] = set()
    waiting = [x.value]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        param = g.graph.param_of(value)
        if is_variable(value) or (value.dtype.is_float and param is not None and param.trainable):
            return True
        waiting.extend(value.node.operands if value.node and value.node.op != STOP else ())
    return False


UnaryRule = Callable[[Builder, Tensor], Tensor]


def unary(op: str) -> UnaryRule:
    """Return a function that applies an elementwise op without attrs in any layout."""

    def apply(g: Builder, x: Tensor) -> Tensor:
        return Tensor(g.emit(op, x.value).result, x.layout)

    return apply
