"""Primitives that reduce, accumulate or multiply matrices."""

import math
from collections.abc import Sequence
from typing import Any

from pockengine.compiler.ir import BOOL, F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives.registry import JaxContext, known_dtype, primitive
from pockengine.frontends.jax.primitives.shape import merged
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

MOST_PRODUCTS = 1 << 20
"""Maximum number of multiplications in a product of integer matrices."""

REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")


MONOIDS = {
    "add": ("reduce_sum", "add"),
    "max": ("reduce_max", "maximum"),
    "min": ("reduce_min", "minimum"),
    "mul": ("reduce_prod", "mul"),
}
"""The reduction and the binary op of a function that combines two numbers."""


def _define_reductions() -> None:
    for name in REDUCTIONS:
        primitive(name)(lambda ctx, x, op=name, *, axes, **_: _reduce(ctx.g, op, x, axes))


def _reduce(g: Builder, op: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    return emit.reduce(g, op, x, axes, keepdims=False) if axes else x


COLLECTIVES = {"psum": "reduce_sum", "pmax": "reduce_max", "pmin": "reduce_min"}
"""The rest of a reduction over a named axis after `vmap` has moved the axis into the arrays."""


def _define_collective(name: str, op: str) -> None:
    @primitive(name)
    def rule(ctx: JaxContext, *operands: Tensor, axes: Sequence[Any], **params: Any) -> Any:
        groups = params.get("axis_index_groups")
        if groups is not None or not all(isinstance(axis, int) for axis in axes):
            raise Unsupported("a reduction over several devices, or in groups; use vmap's axis")
        return [_reduce(ctx.g, op, x, axes) for x in operands]


for _name, _op in COLLECTIVES.items():
    _define_collective(_name, _op)


@primitive("reduce_and")
def reduce_and(ctx: JaxContext, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Whether all are true."""
    return _reduce_bool(ctx, "reduce_min", x, axes)


@primitive("reduce_or")
def reduce_or(ctx: JaxContext, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Whether any is true."""
    return _reduce_bool(ctx, "reduce_max", x, axes)


def _reduce_bool(ctx: JaxContext, op: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    if x.dtype is not BOOL:
        raise Unsupported("bits of integers; use arithmetic or booleans")
    return emit.arithmetic(ctx.g, "gt", _reduce(ctx.g, op, emit.cast(ctx.g, x, F32), axes), 0.5)


@primitive("reduce_xor")
def reduce_xor(ctx: JaxContext, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Whether an odd number of them are true."""
    if x.dtype is not BOOL:
        raise Unsupported("bits of integers; use arithmetic or booleans")
    count = _reduce(ctx.g, "reduce_sum", emit.cast(ctx.g, x, F32), axes)
    return emit.arithmetic(ctx.g, "gt", emit.arithmetic(ctx.g, "rem", count, 2.0), 0.5)


@primitive("argmax")
def argmax(ctx: JaxContext, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Return the index of the first maximum along a dimension."""
    (dim,) = axes
    value = ctx.g.argmax(framework_order(ctx.g, x), axis=dim)
    return emit.cast(ctx.g, plain(value), ctx.dtype)


@primitive("argmin")
def argmin(ctx: JaxContext, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Return the index of the first minimum along a dimension."""
    return argmax(ctx, emit.unary("neg")(ctx.g, x), axes=axes)


@primitive("cumsum")
def cumsum(ctx: JaxContext, x: Tensor, *, axis: int, reverse: bool, **_: Any) -> Tensor:
    """Add up along a dimension."""
    return Tensor(ctx.g.cumsum(x.value, axis=x.axis(axis), reverse=reverse), x.layout)


@primitive("dot_general")
def dot_general(
    ctx: JaxContext, a: Tensor, b: Tensor, *, dimension_numbers: Any, **_: Any
) -> Tensor:
    """Multiply over any dimensions, with any batch dimensions, as one product of matrices.

    The result has the batch dimensions, then the remaining ones of a, then those of b.
    """
    (inner_a, inner_b), (batch_a, batch_b) = dimension_numbers
    free_a = [dim for dim in range(a.rank) if dim not in (*inner_a, *batch_a)]
    free_b = [dim for dim in range(b.rank) if dim not in (*inner_b, *batch_b)]
    left = merged(ctx.g, a, *([dim] for dim in batch_a), free_a, inner_a)
    right = merged(ctx.g, b, *([dim] for dim in batch_b), inner_b, free_b)
    dtype = F32 if a.dtype is b.dtype is F32 else known_dtype(ctx.dtypes[0])
    product = emit.matmul if dtype in (F32, BOOL) else _product_of_integers
    left, right = (emit.cast(ctx.g, x, F32 if dtype is BOOL else dtype) for x in (left, right))
    y = reshape(ctx.g, product(ctx.g, left, right), ctx.shape)
    return emit.arithmetic(ctx.g, "gt", y, 0.5) if dtype is BOOL else y


def _product_of_integers(g: Builder, left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices of integers, for which there is no kernel, by sums of products."""
    (*batch, rows, inner), columns = left.shape, right.shape[-1]
    shape = (*batch, rows, inner, columns)
    if math.prod(shape) > MOST_PRODUCTS:
        raise Unsupported(
            f"a product of integer matrices with {math.prod(shape)} multiplications; "
            f"{MOST_PRODUCTS} are the most: cast them to float32"
        )
    wide = emit.broadcast(g, reshape(g, left, (*batch, rows, inner, 1)), shape)
    other = emit.broadcast(g, reshape(g, right, (*batch, 1, inner, columns)), shape)
    products = emit.arithmetic(g, "mul", wide, other)
    return emit.reduce(g, "reduce_sum", products, (len(shape) - 2,), keepdims=False)


_define_reductions()
