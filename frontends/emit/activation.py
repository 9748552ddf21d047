"""Activations that our IR composes from elementwise ops, and dropout."""

import math

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit.random import next_stream, seed_input
from pockengine.frontends.layout import Tensor

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Of arXiv 1706.02515, which derives them as the fixed point of mean 0 and variance 1."""


def _apply(g: Builder, op: str, *operands: Operand) -> Tensor:
    return emit.arithmetic(g, op, *operands)


def _unary(g: Builder, op: str, x: Tensor) -> Tensor:
    return emit.unary(op)(g, x)


def choose(g: Builder, condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """Take a where the condition holds, else b, at their common type."""
    return emit.elementwise(g, "where", condition, *emit.same_dtype(g, (a, b)))


def silu(g: Builder, x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return _apply(g, "mul", x, _unary(g, "sigmoid", x))


def gelu(g: Builder, x: Tensor, approximate: str) -> Tensor:
    """x Φ(x) with Φ the normal distribution, exact or by the tanh formula."""
    if approximate == "tanh":
        cubic = _apply(g, "mul", _apply(g, "mul", _unary(g, "square", x), x), 0.044715)
        inner = _apply(g, "mul", _apply(g, "add", x, cubic), math.sqrt(2 / math.pi))
        share = _unary(g, "tanh", inner)
    else:
        share = _unary(g, "erf", _apply(g, "mul", x, math.sqrt(0.5)))
    return _apply(g, "mul", _apply(g, "mul", x, 0.5), _apply(g, "add", share, 1.0))


def elu(g: Builder, x: Tensor, alpha: Number, scale: Number, input_scale: Number) -> Tensor:
    """Scale times x above zero, else alpha (exp(input_scale x) - 1)."""
    low = _apply(g, "le", x, 0.0)
    # Zeros keep exp from overflowing where its result is not used.
    exponent = emit.weighted(g, choose(g, low, x, 0.0), float(input_scale))
    below = emit.weighted(g, _unary(g, "expm1", exponent), float(alpha))
    return emit.weighted(g, choose(g, low, below, x), float(scale))


def celu(g: Builder, x: Tensor, alpha: Number) -> Tensor:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return elu(g, x, alpha, 1.0, 1 / alpha)


def leaky_relu(g: Builder, x: Tensor, negative_slope: Number) -> Tensor:
    """x above zero, else slope x."""
    below = _apply(g, "mul", x, float(negative_slope))
    return choose(g, _apply(g, "gt", x, 0.0), x, below)


def softplus(g: Builder, x: Tensor, beta: Number, threshold: Number) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold."""
    scaled = emit.weighted(g, x, float(beta))
    smooth = emit.weighted(g, log1p_exp(g, scaled), 1 / float(beta))
    return choose(g, _apply(g, "gt", scaled, float(threshold)), x, smooth)


def log1p_exp(g: Builder, x: Tensor) -> Tensor:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which overflows on neither side.

    Both parts are chosen by one comparison: the gradient is sigmoid(x), at 0 too, where those of
    max and |x| would each be zero.
    """
    positive = _apply(g, "gt", x, 0.0)
    exponent = choose(g, positive, _unary(g, "neg", x), x)
    tail = _unary(g, "log1p", _unary(g, "exp", exponent))
    return _apply(g, "add", choose(g, positive, x, 0.0), tail)


def softsign(g: Builder, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _apply(g, "div", x, _apply(g, "add", _unary(g, "abs", x), 1.0))


def mish(g: Builder, x: Tensor) -> Tensor:
    """x tanh(softplus(x))."""
    return _apply(g, "mul", x, _unary(g, "tanh", softplus(g, x, 1.0, math.inf)))


def threshold(g: Builder, x: Tensor, threshold: Number, value: Number) -> Tensor:
    """x above the threshold, else the value."""
    return choose(g, _apply(g, "le", x, float(threshold)), float(value), x)


def dropout(g: Builder, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the elements and scale the rest up; pass everything in evaluation mode.

    The numbers come from the input `seed` and differ from the framework's; each dropout of a model
    draws from a stream of its own.
    """
    if not train or p == 0:
        return Tensor(x.value, x.layout, x.copies)
    if p == 1:
        return emit.arithmetic(g, "mul", x, 0.0)
    seed = seed_input(g)
    return Tensor(g.dropout(x.value, seed, p=float(p), stream=next_stream(g)), x.layout)
