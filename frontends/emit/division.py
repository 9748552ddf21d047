"""Rounded division and remainders, of floats and integers.

Rounding is "floor" or "trunc" (towards zero). No gradient flows through a rounded quotient; that of
a remainder x - quotient other is 1 to x and minus the quotient to the divisor.
"""

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Operand
from pockengine.frontends.layout import Tensor


def remainder(g: Builder, x: Operand, other: Operand, rounding: str) -> Tensor:
    """Return x - quotient other exactly: with the divisor's sign if rounded down, else x's."""
    x, other = emit.same_dtype(g, (x, other))
    left = emit.elementwise(g, "rem", x, other)
    if rounding == "trunc":
        return left
    lifted = emit.elementwise(g, "add", left, other)
    return emit.elementwise(g, "where", _is_short(g, left, other), lifted, left)


def quotient(g: Builder, x: Operand, other: Operand, rounding: str) -> Tensor:
    """Return x / other, rounded."""
    x, other = emit.same_dtype(g, (x, other))
    if x.dtype is F32:
        return emit.unary("stop_gradient")(g, _float_quotient(g, x, other, rounding))
    towards_zero = emit.elementwise(g, "quotient", x, other)
    if rounding == "trunc":
        return towards_zero
    short = _is_short(g, emit.elementwise(g, "rem", x, other), other)
    return emit.elementwise(g, "sub", towards_zero, emit.cast(g, short, x.dtype))


def _float_quotient(g: Builder, x: Tensor, other: Tensor, rounding: str) -> Tensor:
    """Subtract the exact remainder before dividing, because x / other may round up."""
    ratio = emit.elementwise(g, "div", x, other)
    if rounding == "trunc":
        return emit.unary("trunc")(g, ratio)
    whole = emit.elementwise(g, "sub", x, remainder(g, x, other, "floor"))
    nearest = emit.unary("round")(g, emit.elementwise(g, "div", whole, other))
    endless = emit.arithmetic(g, "eq", emit.unary("abs")(g, other), float("inf"))
    below = emit.arithmetic(g, "lt", emit.elementwise(g, "mul", x, other), 0.0)
    limit = emit.elementwise(g, "where", below, *_numbers(g, -1.0, 0.0))
    bounded = emit.elementwise(g, "where", endless, limit, nearest)
    nothing = emit.arithmetic(g, "eq", x, 0.0)  # of which the quotient keeps the sign
    zero = emit.elementwise(g, "logical_or", emit.arithmetic(g, "eq", other, 0.0), nothing)
    undefined = emit.elementwise(g, "mul", remainder(g, x, other, "trunc"), *_numbers(g, 0.0))
    floor = emit.elementwise(g, "add", bounded, undefined)  # NaN where the remainder is
    return emit.elementwise(g, "where", zero, ratio, floor)


def _numbers(g: Builder, *numbers: float) -> list[Tensor]:
    return [emit.scalar(g, number, F32) for number in numbers]


def _is_short(g: Builder, left: Tensor, other: Tensor) -> Tensor:
    """Return where rounding down goes one further than rounding towards zero."""
    unlike = emit.elementwise(
        g, "ne", emit.arithmetic(g, "lt", left, 0), emit.arithmetic(g, "lt", other, 0)
    )
    return emit.elementwise(g, "logical_and", emit.arithmetic(g, "ne", left, 0), unlike)
