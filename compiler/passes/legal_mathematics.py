"""Rules of `legalize` for mathematics: by functions that every runtime has, losing no digits."""

import math
from collections.abc import Mapping

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
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
"""Coefficients of log(erfc(x) / t) + x^2 in t = 1 / (1 + x / 2), for x >= 0: right to 1.2e-7
everywhere (Numerical Recipes, 6.2)."""


def _erfc(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    size, one = g.abs(x), g.scalar(1.0)
    t = g.div(one, g.add(g.mul(size, g.scalar(0.5)), one))
    power = g.scalar(ERFC[-1])
    for coefficient in reversed(ERFC[:-1]):
        power = g.add(g.mul(power, t), g.scalar(coefficient))
    right = g.mul(t, g.exp(g.sub(power, g.mul(size, size))))
    return (g.where(g.lt(x, g.scalar(0.0)), g.sub(g.scalar(2.0), right), right),)


def _expm1(g: Builder, node: Node) -> Results:
    """2 t / (1 - t) with t = tanh(x / 2) where exp(x) - 1 would lose digits."""
    (x,), one = node.operands, g.scalar(1.0)
    t = g.tanh(g.mul(x, g.scalar(0.5)))
    near = g.div(g.add(t, t), g.sub(one, t))
    far = g.sub(g.exp(x), one)
    return (g.where(g.lt(g.abs(x), one), near, far),)


def _log1p(g: Builder, node: Node) -> Results:
    """2 atanh(x / (2 + x)) where log(1 + x) would lose digits."""
    (x,) = node.operands
    half = g.atanh(g.div(x, g.add(x, g.scalar(2.0))))
    far = g.log(g.add(x, g.scalar(1.0)))
    return (g.where(g.lt(g.abs(x), g.scalar(0.5)), g.add(half, half), far),)


def _trunc(g: Builder, node: Node) -> Results:
    (x,) = node.operands
    return (g.where(g.lt(x, g.scalar(0.0)), g.ceil(x), g.floor(x)),)


def _hypot(g: Builder, node: Node) -> Results:
    """The larger times sqrt(1 + ratio^2), which does not overflow before its result does."""
    a, b = (g.abs(value) for value in node.operands)
    large, small = g.maximum(a, b), g.minimum(a, b)
    zero, one = g.scalar(0.0), g.scalar(1.0)
    ratio = g.div(small, g.where(g.eq(large, zero), one, large))
    length = g.mul(large, g.sqrt(g.add(g.mul(ratio, ratio), one)))
    infinite = g.eq(large, g.scalar(math.inf))
    return (g.where(infinite, g.scalar(math.inf), length),)


def _atan2(g: Builder, node: Node) -> Results:
    """Atan of the ratio that is at most 1, turned into its eighth of the circle.

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
    """Whether a number, or a zero, has the sign -."""
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


RULES: Mapping[str, Rule] = {
    "erfc": _erfc,
    "expm1": _expm1,
    "log1p": _log1p,
    "trunc": _trunc,
    "hypot": _hypot,
    "atan2": _atan2,
    "binary_cross_entropy": _binary_cross_entropy,
}
