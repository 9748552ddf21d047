"""Special functions, one table row each: gamma, Bessel, and the inverse of erf.

The NumPy versions compute element by element in double precision, by the same methods as
`runtime/simd/pe_special.h`: series and recurrences that converge to f32 accuracy.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops.elementwise import elementwise
from pockengine.compiler.ops.registry import Vjp

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""Bernoulli numbers of even order from 2: the corrections of Euler-Maclaurin summation."""

FAR = 10.0
"""From this argument on, the corrections give 15 digits."""

TERMS, SMALL = 1000, 1e-17
"""Maximum number of terms of a series, and the relative size of the last term."""


def _elements(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    """Apply a function of doubles to each element; overflow gives infinity."""
    each = np.vectorize(lambda *x: function(*map(np.float64, x)), otypes=[np.float32])

    def meaning(*arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(each(*arrays))

    return meaning


def _is_whole(x: float) -> bool:
    return bool(x == np.floor(x))


def _lgamma(x: float) -> float:
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    return math.inf if x <= 0 and _is_whole(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    if x == 0:
        return -math.copysign(math.inf, x)
    if math.isinf(x) or math.isnan(x):
        return x if x > 0 or math.isnan(x) else math.nan
    if x < 0:
        if _is_whole(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1))
    below = 0.0
    while x < FAR:
        below, x = below + 1 / x, x + 1
    tail = sum(b / (2 * k) * x ** (-2 * k) for k, b in enumerate(BERNOULLI, start=1))
    return math.log(x) - 0.5 / x - tail - below


def _zeta(s: float, q: float) -> float:
    if not s > 1 or math.isnan(q):
        return math.inf if s == 1 else math.nan
    if q <= 0 and _is_whole(q):
        return math.inf
    if q <= 0 and not _is_whole(s):
        return math.nan
    total = 0.0
    while q < FAR:
        total, q = total + q**-s, q + 1
    total += q ** (1 - s) / (s - 1) + 0.5 * q**-s
    rising = s
    for k, b in enumerate(BERNOULLI, start=1):
        total += b / math.factorial(2 * k) * rising * q ** (-s - 2 * k + 1)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return float(total)


def _gamma_share(a: float, x: float, upper: bool) -> float:
    """The regularized incomplete gamma integral: t^(a-1) exp(-t) up to x, or from x on, over
    gamma(a).
    """
    if math.isnan(a) or math.isnan(x) or a < 0 or x < 0 or (a == 0 and x == 0):
        return math.nan
    if a == 0 or x == 0 or math.isinf(a) or math.isinf(x):
        if math.isinf(a) and math.isinf(x):
            return math.nan
        return float((a == 0 or math.isinf(x)) != upper)
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        share = scale * _series(a, x)
        return 1 - share if upper else share
    share = scale * _fraction(a, x)
    return share if upper else 1 - share


def _series(a: float, x: float) -> float:
    term = total = 1 / a
    for k in range(1, TERMS):
        term *= x / (a + k)
        total += term
        if term < total * SMALL:
            break
    return total


def _fraction(a: float, x: float) -> float:
    """Evaluate the continued fraction by Lentz's method."""
    b = x + 1 - a
    c, d = math.inf, 1 / b
    total = d
    for k in range(1, TERMS):
        b += 2
        over = -k * (k - a)
        d = 1 / (over * d + b)
        c = b + over / c
        total *= c * d
        if abs(c * d - 1) < SMALL * 10:
            break
    return total


def _gamma_share_slope(a: float, x: float) -> float:
    """The derivative of igamma(a, x) in a."""
    if not a > 0 or not x >= 0 or math.isinf(a):
        return math.nan
    if x == 0 or math.isinf(x):
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    below = x < a + 1
    share, slope = _series_slope(a, x) if below else _fraction_slope(a, x)
    slope = scale * (slope + share * (math.log(x) - _digamma(a)))
    return slope if below else -slope


def _series_slope(a: float, x: float) -> tuple[float, float]:
    """Return `_series` and its derivative in a."""
    term = total = 1 / a
    logarithmic = -1 / a  # (d term / da) / term
    slope = term * logarithmic
    for k in range(1, TERMS):
        term *= x / (a + k)
        logarithmic -= 1 / (a + k)
        total += term
        slope += term * logarithmic
        if term < total * SMALL:
            break
    return total, slope


def _fraction_slope(a: float, x: float) -> tuple[float, float]:
    """Return `_fraction` and its derivative in a, of which d_c and d_d are parts."""
    b = x + 1 - a
    c, d = math.inf, 1 / b
    d_c, d_d = 0.0, d * d
    total, logarithmic = d, d
    for k in range(1, TERMS):
        b += 2
        over = -k * (k - a)
        d_d_inverse = k * d + over * d_d - 1
        d = 1 / (over * d + b)
        d_d = -d * d * d_d_inverse
        d_c = k / c - over * d_c / (c * c) - 1
        c = b + over / c
        total *= c * d
        step = d_c / c + d_d / d
        logarithmic += step
        if abs(c * d - 1) + abs(step) < SMALL * 100:
            break
    return total, total * logarithmic


def _bessel(order: int, x: float) -> float:
    """exp(-|x|) I_order(x), for order 0 or 1."""
    size = abs(x)
    sign = math.copysign(1.0, x) if order else 1.0
    if math.isnan(x) or math.isinf(x):
        return x if math.isnan(x) else sign * 0.0
    term = total = 1.0
    if size <= 30:
        for k in range(1, TERMS):
            term *= (size / 2) ** 2 / (k * (k + order))
            total += term
            if term < total * SMALL:
                break
        return sign * total * (size / 2 if order else 1.0) * math.exp(-size)
    for k in range(1, 20):
        term *= ((2 * k - 1) ** 2 - 4 * order) / (8 * size * k)
        total += term
    return sign * total / math.sqrt(2 * math.pi * size)


def _erf_inv(x: float) -> float:
    """Newton's method, started from Winitzki's approximation."""
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    if x == 0:
        return x
    log = math.log1p(-x * x)
    part = 2 / (math.pi * 0.147) + log / 2
    y = math.copysign(math.sqrt(math.sqrt(part * part - log / 0.147) - part), x)
    for _ in range(4):
        missed = (
            math.erf(y) - x
            if abs(x) < 0.5
            else math.copysign(1, x) * ((1 - abs(x)) - math.erfc(abs(y)))
        )
        y -= missed * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y


def _digamma_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Digamma x  =>  dx = dy zeta(2, x)."""
    return g.mul(dy, g.zeta(g.scalar(2.0), node.operands[0]))


def _zeta_db(g: "Builder", node: Node, dy: Value) -> Value:
    """y = zeta(s, q)  =>  dq = -dy s zeta(s + 1, q)."""
    s, q = node.operands
    return g.neg(g.mul(dy, g.mul(s, g.zeta(g.add(s, g.scalar(1.0)), q))))


def _gamma_density(g: "Builder", a: Value, x: Value) -> Value:
    """x^(a - 1) exp(-x) / gamma(a): the derivative of igamma(a, x) in x."""
    power = g.mul(g.sub(a, g.scalar(1.0)), g.log(x))
    return g.exp(g.sub(g.sub(power, x), g.lgamma(a)))


def _gamma_share_vjp(sign: float) -> dict[str, Vjp]:
    """Return the rules of igamma; igammac's are the opposite."""

    def da(g: "Builder", node: Node, dy: Value) -> Value:
        return g.mul(g.mul(dy, g.igamma_da(*node.operands)), g.scalar(sign))

    def dx(g: "Builder", node: Node, dy: Value) -> Value:
        return g.mul(g.mul(dy, _gamma_density(g, *node.operands)), g.scalar(sign))

    return {"a": da, "b": dx}


def _gamma_share_slope_db(g: "Builder", node: Node, dy: Value) -> Value:
    """y = igamma_da(a, x)  =>  dx = dy (log x - digamma a) times igamma's derivative in x."""
    a, x = node.operands
    slope = g.mul(_gamma_density(g, a, x), g.sub(g.log(x), g.digamma(a)))
    return g.mul(dy, slope)


def _i0_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = i0 x  =>  dx = dy i1 x."""
    return g.mul(dy, g.i1(node.operands[0]))


def _i1_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = i1 x  =>  dx = dy (i0 x - y / x), which is dy / 2 at 0."""
    (x,) = node.operands
    return g.mul(dy, _unless_zero(g, x, g.sub(g.i0(x), g.div(node.result, x))))


def _i0e_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = i0e x  =>  dx = dy (i1e x - sign(x) y)."""
    (x,) = node.operands
    return g.mul(dy, g.sub(g.i1e(x), g.mul(g.sign(x), node.result)))


def _i1e_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = i1e x  =>  dx = dy (i0e x - sign(x) y - y / x), which is dy / 2 at 0."""
    (x,) = node.operands
    slope = g.sub(g.i0e(x), g.mul(g.sign(x), node.result))
    return g.mul(dy, _unless_zero(g, x, g.sub(slope, g.div(node.result, x))))


def _unless_zero(g: "Builder", x: Value, slope: Value) -> Value:
    return g.where(g.eq(x, g.scalar(0.0)), g.scalar(0.5), slope)


def _erf_inv_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = erf_inv x  =>  dx = dy sqrt(pi) / 2 exp(y^2)."""
    slope = g.exp(g.square(node.result))
    return g.mul(dy, g.mul(slope, g.scalar(math.sqrt(math.pi) / 2)))


UNARY: Mapping[str, tuple[Callable[[float], float], Vjp]] = {
    "lgamma": (_lgamma, lambda g, n, dy: g.mul(dy, g.digamma(n.operands[0]))),
    "digamma": (_digamma, _digamma_dx),
    "i0": (lambda x: _bessel(0, x) * np.exp(abs(x)), _i0_dx),
    "i1": (lambda x: _bessel(1, x) * np.exp(abs(x)), _i1_dx),
    "i0e": (lambda x: _bessel(0, x), _i0e_dx),
    "i1e": (lambda x: _bessel(1, x), _i1e_dx),
    "erf_inv": (_erf_inv, _erf_inv_dx),
}

BINARY: Mapping[str, tuple[Callable[[float, float], float], dict[str, Vjp]]] = {
    "zeta": (_zeta, {"b": _zeta_db}),  # sum of (q + k)^-s, s > 1
    "igamma": (lambda a, x: _gamma_share(a, x, upper=False), _gamma_share_vjp(1.0)),
    "igammac": (lambda a, x: _gamma_share(a, x, upper=True), _gamma_share_vjp(-1.0)),
    "igamma_da": (_gamma_share_slope, {"b": _gamma_share_slope_db}),
}

for _name, (_meaning, _rule) in UNARY.items():
    elementwise(_name, "x", _elements(_meaning), vjp={"x": _rule})
for _name, (_of_two, _rules) in BINARY.items():
    elementwise(_name, "a b", _elements(_of_two), vjp=_rules)
