"""The meanings of elementwise operators: one table to which all frontends map operator names.

A meaning is one of our elementwise ops, or a formula of them that has a name here. Its tensors have
one type: type promotion happens before. Deviations of a framework (the gradient of a tie, the sign
of NaN) are rules of that frontend, not meanings.
"""

import math
import re
from collections.abc import Callable

from pockengine.compiler.ir import F32, Builder
from pockengine.compiler.ops.registry import lookup
from pockengine.frontends import emit
from pockengine.frontends.emit import activation, division
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor

Emitter = Callable[..., Tensor]
"""Takes the builder, tensors of one type, and settings by name."""


def _apply(op: str) -> Emitter:
    """Return a function that applies an op to its operands."""
    return lambda g, *operands: emit.elementwise(g, op, *operands)


def _combine(op: str) -> Emitter:
    """Return a function that combines any number of tensors with a binary op."""

    def formula(g: Builder, first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = emit.elementwise(g, op, first, other)
        return first

    return formula


def _scale(op: str, inside: float, outside: float) -> Emitter:
    """Return a function that applies a unary op with a factor before and after it."""

    def formula(g: Builder, x: Tensor) -> Tensor:
        return emit.weighted(g, emit.unary(op)(g, emit.weighted(g, x, inside)), outside)

    return formula


def _average(g: Builder, *operands: Tensor) -> Tensor:
    """Average tensors element by element."""
    return emit.weighted(g, _combine("add")(g, *operands), 1 / len(operands))


def _divide(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """a / b, of floats."""
    if a.dtype is not F32:
        raise Unsupported(f"division of {a.dtype.value}; cast to float first")
    return emit.elementwise(g, "div", a, b)


def _is_finite(g: Builder, x: Tensor) -> Tensor:
    """Whether x is neither infinite nor no number."""
    return emit.arithmetic(g, "lt", emit.unary("abs")(g, x), math.inf)


def _is_infinite(g: Builder, x: Tensor) -> Tensor:
    """Whether x is plus or minus infinity."""
    return emit.arithmetic(g, "eq", emit.unary("abs")(g, x), math.inf)


def _is_nan(g: Builder, x: Tensor) -> Tensor:
    """Whether x is NaN."""
    return emit.elementwise(g, "ne", x, x)


def _squared_difference(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """(a - b)^2."""
    return emit.unary("square")(g, emit.elementwise(g, "sub", a, b))


def polygamma(g: Builder, order: int, x: Tensor) -> Tensor:
    """Differentiate log gamma order + 1 times."""
    if order == 0:
        return emit.unary("digamma")(g, x)
    sign = 1.0 if order % 2 else -1.0
    zeta = emit.arithmetic(g, "zeta", float(order + 1), x)
    return emit.weighted(g, zeta, sign * math.factorial(order))


def polygamma_of(g: Builder, order: Tensor, x: Tensor) -> Tensor:
    """Differentiate log gamma order + 1 times; the order must be known now."""
    number = emit.number(g, order)
    if number is None or number < 0 or number != int(number):
        raise Unsupported("polygamma of an order that is no whole number known now")
    return polygamma(g, int(number), x)


FORMULAS: dict[str, Emitter] = {
    "average": _average,
    "celu": activation.celu,
    "divide": _divide,
    "elu": activation.elu,
    "exp2": _scale("exp", math.log(2), 1.0),
    "floor_mod": lambda g, x, other: division.remainder(g, x, other, "floor"),
    "gelu": activation.gelu,
    "greatest": _combine("maximum"),
    "is_finite": _is_finite,
    "is_infinite": _is_infinite,
    "is_nan": _is_nan,
    "least": _combine("minimum"),
    "leaky_relu": activation.leaky_relu,
    "log10": _scale("log", 1.0, 1 / math.log(10)),
    "log2": _scale("log", 1.0, 1 / math.log(2)),
    "log_sigmoid": activation.log_sigmoid,
    "logical_xor": _apply("ne"),
    "mish": activation.mish,
    "polygamma": polygamma_of,
    "prelu": activation.prelu,
    "relu6": activation.relu6,
    "selu": activation.selu,
    "silu": activation.silu,
    "softplus": activation.softplus,
    "softsign": activation.softsign,
    "squared_difference": _squared_difference,
    "sum": _combine("add"),
    "threshold": activation.threshold,
}
"""Meanings that our ops do not have themselves."""


def emitter(meaning: str) -> Emitter:
    """Return the function that emits a meaning; GraphError if no op or formula has this name."""
    formula = FORMULAS.get(meaning)
    if formula is not None:
        return formula
    lookup(meaning)
    return _apply(meaning)


def alike(operators: str) -> dict[str, str]:
    """Map operators, separated by spaces, to the meanings of their names in snake case."""
    return {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in operators.split()}
