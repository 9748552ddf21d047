"""Primitives of PyTorch's operator definitions besides ATen, and rare mathematics.

`decompose.py` falls back on these definitions; some end in `prims`.
"""

import math
from collections.abc import Sequence

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.dtypes import ELSE
from pockengine.frontends.emit import Operand
from pockengine.frontends.emit import division as emit_division
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.reduction import var
from pockengine.frontends.torch.aten.registry import AtenContext, aten
from pockengine.frontends.torch.ties import share_of_tie


def _define_ignoring_nan(name: str, comparison: str, extreme: str) -> None:
    @aten(f"{name}.default")
    def rule(ctx: AtenContext, x: Tensor, other: Tensor) -> Tensor:
        g = ctx.g
        nan = emit.arithmetic(g, "ne", other, other)
        if share_of_tie("fmax") == 1:
            wins = emit.arithmetic(g, "logical_or", emit.arithmetic(g, comparison, x, other), nan)
            return emit.elementwise(g, "where", wins, x, other)
        number = emit.arithmetic(g, "eq", x, x)
        other = emit.elementwise(g, "where", number, emit.arithmetic(g, extreme, x, other), other)
        return emit.elementwise(g, "where", nan, x, other)


_define_ignoring_nan("fmax", "ge", "maximum")
_define_ignoring_nan("fmin", "le", "minimum")


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_and_round(
    ctx: AtenContext, x: Tensor, other: Operand, rounding_mode: str | None
) -> Tensor:
    """x / other, rounded down or towards zero."""
    if rounding_mode is None:
        return emit.arithmetic(ctx.g, "div", emit.cast(ctx.g, x, F32), other)
    return emit_division.quotient(ctx.g, x, other, rounding_mode)


@aten("prims.convert_element_type.default")
def convert(ctx: AtenContext, x: Tensor, dtype: object) -> Tensor:
    """Convert to PyTorch's result type."""
    if ctx.dtype is None:
        raise Unsupported(f"conversion to {ELSE}")
    return emit.cast(ctx.g, x, ctx.dtype)


@aten("prims.broadcast_in_dim.default")
def broadcast_in_dim(
    ctx: AtenContext, x: Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Tensor:
    """Place x's dimensions at these positions of the result, and broadcast along the others."""
    wide = [1] * len(shape)
    for place, size in zip(broadcast_dimensions, x.shape, strict=True):
        wide[place] = size
    return emit.broadcast(ctx.g, reshape(ctx.g, x, tuple(wide)), tuple(shape))


def _define_reduction(name: str, op: str) -> None:
    @aten(f"prims.{name}.default")
    def rule(ctx: AtenContext, x: Tensor, dims: Sequence[int] | None, **_: object) -> Tensor:
        return emit.reduce(ctx.g, op, x, dims or (), keepdims=False)


for _name in ("sum", "prod"):
    _define_reduction(_name, f"reduce_{_name}")
for _name in ("max", "min"):
    _define_reduction(f"a{_name}", f"reduce_{_name}")


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(ctx: AtenContext, x: Tensor, other: Operand) -> Tensor:
    """|x| with the other's sign."""
    size = emit.unary("abs")(ctx.g, emit.cast(ctx.g, x, F32))
    if not isinstance(other, Tensor):
        return emit.unary("neg")(ctx.g, size) if math.copysign(1.0, other) < 0 else size
    return emit.choose(ctx.g, signbit(ctx, other), emit.unary("neg")(ctx.g, size), size)


@aten("signbit.default")
def signbit(ctx: AtenContext, x: Tensor) -> Tensor:
    """Whether x is below zero, or a negative zero."""
    below = emit.arithmetic(ctx.g, "lt", x, 0)
    if x.dtype is not F32:
        return below
    negative_zero = emit.arithmetic(ctx.g, "eq", emit.unary("reciprocal")(ctx.g, x), -math.inf)
    return emit.arithmetic(ctx.g, "logical_or", below, negative_zero)


@aten("prims.var.default")
def variance(
    ctx: AtenContext, x: Tensor, dims: Sequence[int] | None, correction: float, **_: object
) -> Tensor:
    """Mean squared deviation with n - correction in place of n."""
    return var(ctx, x, dims, correction)
