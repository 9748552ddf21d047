"""Powers with constant exponents: products and roots instead of logarithms where possible."""

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor

CHAINS: dict[float, tuple[str, ...]] = {
    -1: ("reciprocal",),
    0.5: ("sqrt",),
    1: (),
    2: ("square",),
    4: ("square", "square"),
}
"""Exponents of floats, as ops that in sequence give the power."""


def short_power(g: Builder, x: Tensor, exponent: Tensor) -> Tensor | None:
    """Raise x to a tensor that holds one known number; None if it takes the op `pow`."""
    number = emit.number(g, exponent)
    known = None if number is None else known_power(g, x, number)
    if known is None and x.dtype is not F32:
        raise Unsupported(f"powers of {x.dtype.value}; cast to float first")
    return known


def known_power(g: Builder, x: Tensor, exponent: Number) -> Tensor | None:
    """Raise x to a number; None if floats need the op `pow`."""
    if x.dtype is not F32:
        return integer_power(g, x, exponent)
    if exponent == 3:
        return emit.arithmetic(g, "mul", emit.unary("square")(g, x), x)
    if exponent not in CHAINS:
        return None
    for op in CHAINS[exponent]:
        x = emit.unary(op)(g, x)
    return x


def integer_power(g: Builder, x: Tensor, exponent: Number) -> Tensor:
    """Raise integers to an integer power; products wrap."""
    if exponent != int(exponent) or exponent < 0:
        raise Unsupported(f"{x.dtype.value} raised to {exponent}; cast to float first")
    return whole_power(g, x, int(exponent))


def whole_power(g: Builder, x: Tensor, exponent: int) -> Tensor:
    """Raise x to an integer power by squaring; below 0 the reciprocal of floats."""
    if exponent < 0:
        return emit.unary("reciprocal")(g, whole_power(g, x, -exponent))
    if exponent == 0:
        return emit.broadcast(g, emit.scalar(g, 1, x.dtype), x.shape)
    if exponent == 1:
        return x
    square = emit.unary("square")(g, whole_power(g, x, exponent // 2))
    return emit.arithmetic(g, "mul", square, x) if exponent % 2 else square
