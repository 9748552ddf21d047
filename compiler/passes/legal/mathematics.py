"""Rules of `legalize` for mathematical functions, from functions that every runtime has, without
loss of accuracy.
"""

import math
from collections.abc import Mapping, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
from pockengine.compiler.ir.types import I32
from pockengine.compiler.ops.mathematics import LEAST_LOG

Results = tuple[Value, ...]

ERFC = (
    -1.26551223,
    1.00002368,
    0.37409196,
    0.09678418,
    -0.18628806,
    0.27886807,
    -1.13520398,
    1.48851587,
    -0.82215223,
    0.17087277,
)
"""Coefficients of log(erfc(x) / t) + x^2 in t = 1 / (1 + x / 2), for x >= 0: relative error
below 1.2e-7 everywhere (Numerical Recipes, 6.2).
"""

ERF_NEAR = (
    -5.96761703e-4,
    4.99119423e-3,
    -2.67681349e-2,
    1.12819925e-1,
    -3.76125336e-1,
    1.28379166e-1,
)
"""Coefficients of erf(x) / x - 1 in x^2, to |x| = ERF_FAR."""
ERF_TAIL = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
    0.0,
)
"""Coefficients of log(1 - erf(x)) + x in x, beyond ERF_FAR; both are those of `pe_erf` in C."""
ERF_FAR = 0.927734375


def _polynomial(g: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial in x; the first coefficient is of the highest power."""
    power = g.scalar(coefficients[0])
    for coefficient in coefficients[1:]:
        power = g.add(g.mul(power, x), g.scalar(coefficient))
    return power


def _erf(g: Builder, node: Node) -> Results:
    """An odd polynomial near zero, 1 - exp(polynomial in |x|) elsewhere."""
    (x,) = node.operands
    size = g.abs(x)
    tail = g.sub(_polynomial(g, size, ERF_TAIL), size)
    far = g.mul(g.sign(x), g.sub(g.scalar(1.0), g.exp(tail)))
    near = g.add(g.mul(_polynomial(g, g.mul(x, x), ERF_NEAR), x), x)
    return (g.where(g.gt(size, g.scalar(ERF_FAR)), far, near),)


def _erfc(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    size, one = g.abs(x), g.scalar(1.0)
    t = g.div(one, g.add(g.mul(size, g.scalar(0.5)), one))
    power = _polynomial(g, t, ERFC[::-1])
    right = g.mul(t, g.exp(g.sub(power, g.mul(size, size))))
    return (g.where(g.lt(x, g.scalar(0.0)), g.sub(g.scalar(2.0), right), right),)


def _expm1(g: Builder, node: Node) -> Results:
    """2 t / (1 - t) with t = tanh(x / 2), where exp(x) - 1 would lose digits."""
    (x,), one = node.operands, g.scalar(1.0)
    t = g.tanh(g.mul(x, g.scalar(0.5)))
    near = g.div(g.add(t, t), g.sub(one, t))
    far = g.sub(g.exp(x), one)
    return (g.where(g.lt(g.abs(x), one), near, far),)


def _log1p(g: Builder, node: Node) -> Results:
    """x log(u) / (u - 1) with the rounded u = 1 + x (Kahan); x itself if u is 1."""
    (x,) = node.operands
    u = g.add(x, g.scalar(1.0))
    less = g.sub(u, g.scalar(1.0))
    same = g.eq(less, g.scalar(0.0))
    ratio = g.div(g.log(u), g.where(same, g.scalar(1.0), less))
    near = g.where(same, x, g.mul(x, ratio))
    return (g.where(g.eq(u, g.scalar(math.inf)), u, near),)


def _atanh(g: Builder, node: Node) -> Results:
    """log1p(2 x / (1 - x)) / 2."""
    (x,) = node.operands
    ratio = g.div(g.add(x, x), g.sub(g.scalar(1.0), x))
    return (g.mul(g.log1p(ratio), g.scalar(0.5)),)


def _asinh(g: Builder, node: Node) -> Results:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), with the sign of x."""
    (x,), one = node.operands, g.scalar(1.0)
    size = g.abs(x)
    term = g.div(size, g.add(one, g.hypot(size, one)))
    return (g.mul(g.sign(x), g.log1p(g.add(size, g.mul(size, term)))),)


def _acosh(g: Builder, node: Node) -> Results:
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1."""
    t = g.sub(node.operands[0], g.scalar(1.0))
    root = g.mul(g.sqrt(t), g.sqrt(g.add(t, g.scalar(2.0))))
    return (g.log1p(g.add(t, root)),)


def _root(g: Builder, x: Value) -> Value:
    """The square root of 1 - x^2."""
    one = g.scalar(1.0)
    return g.sqrt(g.mul(g.sub(one, x), g.add(one, x)))


def _asin(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    return (g.atan2(x, _root(g, x)),)


def _acos(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    return (g.atan2(_root(g, x), x),)


def _sinh(g: Builder, node: Node) -> Results:
    """(e + e / (e + 1)) / 2 with e = exp(|x|) - 1, with the sign of x."""
    (x,), half = node.operands, g.scalar(0.5)
    e = g.expm1(g.abs(x))
    infinite = g.eq(e, g.scalar(math.inf))
    term = g.where(infinite, g.scalar(1.0), g.div(e, g.add(e, g.scalar(1.0))))
    return (g.mul(g.sign(x), g.add(g.mul(e, half), g.mul(term, half))),)


def _cosh(g: Builder, node: Node) -> Results:
    (x,), half = node.operands, g.scalar(0.5)
    powers = (g.exp(value) for value in (x, g.mul(x, g.scalar(-1.0))))
    return (g.add(*(g.mul(power, half) for power in powers)),)


def _tan(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    return (g.div(g.sin(x), g.cos(x)),)


def _trunc(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    return (g.where(g.lt(x, g.scalar(0.0)), g.ceil(x), g.floor(x)),)


def _hypot(g: Builder, node: Node) -> Results:
    """The larger times sqrt(1 + ratio^2), which overflows only if the result does."""
    a, b = (g.abs(value) for value in node.operands)
    large, small = g.maximum(a, b), g.minimum(a, b)
    zero, one = g.scalar(0.0), g.scalar(1.0)
    ratio = g.div(small, g.where(g.eq(large, zero), one, large))
    length = g.mul(large, g.sqrt(g.add(g.mul(ratio, ratio), one)))
    infinite = g.eq(large, g.scalar(math.inf))
    return (g.where(infinite, g.scalar(math.inf), length),)


def _atan2(g: Builder, node: Node) -> Results:
    """Atan of the ratio that is at most 1, moved to the right octant.

    Zeros and infinities have their own ratios; the sign of a zero is found by 1 / a.
    """
    y, x = node.operands
    zero, one = g.scalar(0.0), g.scalar(1.0)
    rise, run = g.abs(y), g.abs(x)
    large = g.maximum(rise, run)
    ratio = g.div(g.minimum(rise, run), g.where(g.eq(large, zero), one, large))
    same = g.eq(rise, run)
    nothing = g.eq(large, zero)
    ratio = g.where(g.logical_and(same, g.logical_not(nothing)), one, ratio)
    angle = g.atan(ratio)
    angle = g.where(g.gt(rise, run), g.sub(g.scalar(math.pi / 2), angle), angle)
    angle = g.where(_negative(g, x), g.sub(g.scalar(math.pi), angle), angle)
    return (g.where(_negative(g, y), g.mul(angle, g.scalar(-1.0)), angle),)


def _negative(g: Builder, x: Value) -> Value:
    """Whether a number, or a zero, is negative."""
    zero = g.scalar(0.0)
    below = g.lt(g.div(g.scalar(1.0), g.where(g.eq(x, zero), x, g.scalar(1.0))), zero)
    return g.logical_or(g.lt(x, zero), below)


def _binary_cross_entropy(g: Builder, node: Node) -> Results:
    """(target - 1) max(log(1 - x), -100) - target max(log x, -100)."""
    x, target = node.operands
    least = g.scalar(LEAST_LOG)
    missed = g.maximum(g.log1p(g.mul(x, g.scalar(-1.0))), least)
    hit = g.maximum(g.log(x), least)
    return (g.sub(g.mul(g.sub(target, g.scalar(1.0)), missed), g.mul(target, hit)),)


_HALVINGS = (64, 32, 16, 8, 4, 2, 1)
_FRACTION = 23
"""Fraction bits of an f32; the exponent of 2 is stored as 127 + 1."""


def _float_bits(g: Builder, node: Node) -> Results:
    """Split into sign, exponent and fraction by comparisons with powers of 2; NaN has no sign."""
    (x,), zero = node.operands, g.scalar(0.0)
    size, exponent = g.abs(x), g.scalar(127.0)
    fraction = size
    for power in _HALVINGS:
        for beyond, sign in ((g.ge(fraction, g.scalar(2.0**power)), 1), (None, -1)):
            moves = g.lt(fraction, g.scalar(2.0 ** (1 - power))) if beyond is None else beyond
            scale, count = g.scalar(2.0 ** (-sign * power)), g.scalar(float(sign * power))
            fraction = g.where(moves, g.mul(fraction, scale), fraction)
            exponent = g.add(exponent, g.where(moves, count, zero))

    def whole(value: Value, factor: int) -> Value:
        return g.cast(g.mul(value, g.scalar(float(factor))), dtype=I32.value)

    first = g.mul(g.cast(exponent, dtype=I32.value), g.scalar(1 << _FRACTION, I32))
    bits = g.add(first, whole(g.sub(fraction, g.scalar(1.0)), 1 << _FRACTION))
    tiny = whole(g.mul(size, g.scalar(2.0**126)), 1 << _FRACTION)
    bits = g.where(g.lt(size, g.scalar(2.0**-126)), tiny, bits)
    for holds, known in ((g.eq(size, g.scalar(math.inf)), 0x7F800000), (g.ne(x, x), 0x7FC00000)):
        bits = g.where(holds, g.scalar(known, I32), bits)
    below = g.lt(g.where(g.eq(x, zero), g.div(g.scalar(1.0), x), x), zero)
    return (g.where(below, g.add(bits, g.scalar(-(1 << 31), I32)), bits),)


RULES: Mapping[str, Rule] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _asinh,
    "atanh": _atanh,
    "cosh": _cosh,
    "erf": _erf,
    "sinh": _sinh,
    "tan": _tan,
    "erfc": _erfc,
    "expm1": _expm1,
    "log1p": _log1p,
    "trunc": _trunc,
    "hypot": _hypot,
    "atan2": _atan2,
    "binary_cross_entropy": _binary_cross_entropy,
    "float_bits": _float_bits,
}
