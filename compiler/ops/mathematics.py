"""Elementwise mathematics beyond arithmetic, one table row each, as in `elementwise`."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops.elementwise import elementwise, zero_dx
from pockengine.compiler.ops.registry import Vjp

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

_ERF = np.vectorize(math.erf, otypes=[np.float32])
_ERFC = np.vectorize(math.erfc, otypes=[np.float32])
Meaning = Callable[..., Any]


def _x(node: Node) -> Value:
    return node.operands[0]


def _erf_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Erf x  =>  dx = dy 2 / sqrt(pi) exp(-x^2)."""
    slope = g.exp(g.neg(g.square(_x(node))))
    return g.mul(dy, g.mul(slope, g.scalar(2 / math.sqrt(math.pi))))


def _erfc_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Erfc x  =>  dx = -dy 2 / sqrt(pi) exp(-x^2)."""
    return g.neg(_erf_dx(g, node, dy))


def _tan_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Tan x  =>  dx = dy (1 + y^2)."""
    return g.mul(dy, g.add(g.scalar(1.0), g.square(node.result)))


def _atan_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Atan x  =>  dx = dy / (1 + x^2)."""
    return g.div(dy, g.add(g.scalar(1.0), g.square(_x(node))))


def _root_dx(sign: float) -> Vjp:
    """Asin x and acos x  =>  dx = +-dy / sqrt(1 - x^2)."""

    def rule(g: "Builder", node: Node, dy: Value) -> Value:
        root = g.rsqrt(g.sub(g.scalar(1.0), g.square(_x(node))))
        return g.mul(g.mul(dy, root), g.scalar(sign))

    return rule


def _asinh_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Asinh x  =>  dx = dy / sqrt(x^2 + 1)."""
    return g.mul(dy, g.rsqrt(g.add(g.square(_x(node)), g.scalar(1.0))))


def _acosh_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Acosh x  =>  dx = dy / sqrt(x^2 - 1)."""
    return g.mul(dy, g.rsqrt(g.sub(g.square(_x(node)), g.scalar(1.0))))


def _atanh_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Atanh x  =>  dx = dy / (1 - x^2)."""
    return g.div(dy, g.sub(g.scalar(1.0), g.square(_x(node))))


def _hypot_rule(index: int) -> Vjp:
    """y = hypot(a, b)  =>  da = dy a / y."""
    return lambda g, node, dy: g.mul(dy, g.div(node.operands[index], node.result))


def _pow_da(g: "Builder", node: Node, dy: Value) -> Value:
    """y = a^b  =>  da = dy b a^(b - 1), and 0 where b is 0."""
    a, b = node.operands
    slope = g.mul(b, g.pow(a, g.sub(b, g.scalar(1.0))))
    return g.mul(dy, g.where(g.eq(b, g.scalar(0.0)), g.scalar(0.0), slope))


def _pow_db(g: "Builder", node: Node, dy: Value) -> Value:
    """y = a^b  =>  db = dy y log a, and 0 where a is 0 and b >= 0."""
    a, b = node.operands
    zero = g.logical_and(g.eq(a, g.scalar(0.0)), g.ge(b, g.scalar(0.0)))
    return g.mul(dy, g.where(zero, g.scalar(0.0), g.mul(node.result, g.log(a))))


def _atan2_rule(index: int, sign: float) -> Vjp:
    """y = atan2(a, b)  =>  da = dy b / (a^2 + b^2), db = -dy a / (a^2 + b^2); 0 at the origin."""

    def rule(g: "Builder", node: Node, dy: Value) -> Value:
        a, b = node.operands
        length = g.add(g.square(a), g.square(b))
        slope = g.mul(g.div(node.operands[1 - index], length), g.scalar(sign))
        return g.mul(dy, g.where(g.eq(length, g.scalar(0.0)), g.scalar(0.0), slope))

    return rule


LEAST_LOG, LEAST_VARIANCE = -100.0, 1e-12
"""PyTorch's clamps of binary cross entropy: for the logarithms and the gradient's divisor."""


def _binary_cross_entropy(x: np.ndarray, target: np.ndarray) -> np.ndarray:
    least = np.float32(LEAST_LOG)
    missed, hit = np.maximum(np.log1p(-x), least), np.maximum(np.log(x), least)
    return np.asarray((target - 1) * missed - target * hit)


def _cross_entropy_da(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = dy (x - target) / (x (1 - x)), the divisor at least 1e-12."""
    x, target = node.operands
    variance = g.mul(g.sub(g.scalar(1.0), x), x)
    slope = g.div(g.sub(x, target), g.maximum(variance, g.scalar(LEAST_VARIANCE)))
    return g.mul(dy, slope)


def _cross_entropy_db(g: "Builder", node: Node, dy: Value) -> Value:
    """dtarget = dy (log(1 - x) - log x), each at least -100."""
    x, least = _x(node), g.scalar(LEAST_LOG)
    missed, hit = g.log1p(g.neg(x)), g.log(x)
    return g.mul(dy, g.sub(g.maximum(missed, least), g.maximum(hit, least)))


UNARY: Mapping[str, tuple[Meaning, Vjp | None]] = {
    "erf": (_ERF, _erf_dx),
    "erfc": (_ERFC, _erfc_dx),  # 1 - erf x, accurate where that is small
    "sin": (np.sin, lambda g, n, dy: g.mul(dy, g.cos(_x(n)))),
    "cos": (np.cos, lambda g, n, dy: g.neg(g.mul(dy, g.sin(_x(n))))),
    "tan": (np.tan, _tan_dx),
    "asin": (np.arcsin, _root_dx(1.0)),
    "acos": (np.arccos, _root_dx(-1.0)),
    "atan": (np.arctan, _atan_dx),
    "sinh": (np.sinh, lambda g, n, dy: g.mul(dy, g.cosh(_x(n)))),
    "cosh": (np.cosh, lambda g, n, dy: g.mul(dy, g.sinh(_x(n)))),
    "asinh": (np.arcsinh, _asinh_dx),
    "acosh": (np.arccosh, _acosh_dx),
    "atanh": (np.arctanh, _atanh_dx),
    "expm1": (np.expm1, lambda g, n, dy: g.mul(dy, g.add(n.result, g.scalar(1.0)))),
    "log1p": (np.log1p, lambda g, n, dy: g.div(dy, g.add(_x(n), g.scalar(1.0)))),
    "floor": (np.floor, zero_dx),
    "ceil": (np.ceil, zero_dx),
    "round": (np.round, zero_dx),  # halves to even, as in PyTorch and C's rintf
    "trunc": (np.trunc, zero_dx),
}

BINARY: Mapping[str, tuple[Meaning, Mapping[str, Vjp], tuple[int, ...]]] = {
    "pow": (np.power, {"a": _pow_da, "b": _pow_db}, ()),
    "atan2": (np.arctan2, {"a": _atan2_rule(0, 1.0), "b": _atan2_rule(1, -1.0)}, ()),
    "binary_cross_entropy": (
        _binary_cross_entropy,
        {"a": _cross_entropy_da, "b": _cross_entropy_db},
        (1,),
    ),
    "hypot": (np.hypot, {"a": _hypot_rule(0), "b": _hypot_rule(1)}, ()),
}

for _name, (_meaning, _rule) in UNARY.items():
    elementwise(_name, "x", _meaning, vjp={"x": _rule} if _rule else {})
for _name, (_meaning, _rules, _linear) in BINARY.items():
    elementwise(_name, "a b", _meaning, vjp=_rules, linear=_linear)
