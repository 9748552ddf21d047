"""Activations that our IR composes from elementwise ops, and dropout."""

import math

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.random import next_stream, seed_input
from pockengine.frontends.layout import Tensor

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Of arXiv 1706.02515, which derives them as the fixed point of mean 0 and variance 1."""


def silu(g: Builder, x: Tensor, beta: Number = 1.0) -> Tensor:
    """x sigmoid(beta x)."""
    share = emit.unary("sigmoid")(g, emit.weighted(g, x, float(beta)))
    return emit.arithmetic(g, "mul", x, share)


def gelu(g: Builder, x: Tensor, approximate: str = "none") -> Tensor:
    """x Φ(x) with Φ the normal distribution, exact or by the tanh formula."""
    if approximate == "tanh":
        cube = emit.arithmetic(g, "mul", emit.unary("square")(g, x), x)
        bent = emit.arithmetic(g, "add", x, emit.arithmetic(g, "mul", cube, 0.044715))
        angle = emit.arithmetic(g, "mul", bent, math.sqrt(2 / math.pi))
        share = emit.unary("tanh")(g, angle)
    else:
        share = emit.unary("erf")(g, emit.arithmetic(g, "mul", x, math.sqrt(0.5)))
    half = emit.arithmetic(g, "mul", x, 0.5)
    return emit.arithmetic(g, "mul", half, emit.arithmetic(g, "add", share, 1.0))


def elu(
    g: Builder, x: Tensor, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0
) -> Tensor:
    """Scale times x above zero, else alpha (exp(input_scale x) - 1)."""
    low = emit.arithmetic(g, "le", x, 0.0)
    # Zeros keep exp from overflowing where its result is not used.
    exponent = emit.weighted(g, emit.choose(g, low, x, 0.0), float(input_scale))
    below = emit.weighted(g, emit.unary("expm1")(g, exponent), float(alpha))
    return emit.weighted(g, emit.choose(g, low, below, x), float(scale))


def celu(g: Builder, x: Tensor, alpha: Number = 1.0) -> Tensor:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return elu(g, x, alpha, scale=1.0, input_scale=1 / alpha)


def selu(g: Builder, x: Tensor, alpha: Number = SELU_ALPHA, scale: Number = SELU_SCALE) -> Tensor:
    """Elu with the constants that keep mean and variance."""
    return elu(g, x, alpha, scale)


def leaky_relu(g: Builder, x: Tensor, negative_slope: Number = 0.01) -> Tensor:
    """x above zero, else slope x."""
    below = emit.arithmetic(g, "mul", x, float(negative_slope))
    return emit.choose(g, emit.arithmetic(g, "gt", x, 0.0), x, below)


def prelu(g: Builder, x: Tensor, slope: Operand) -> Tensor:
    """x above zero, else slope x, with plain broadcasting."""
    positive = emit.arithmetic(g, "gt", x, 0.0)
    return emit.choose(g, positive, x, emit.arithmetic(g, "mul", x, slope))


def softplus(g: Builder, x: Tensor, beta: Number = 1.0, threshold: Number = math.inf) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold."""
    scaled = emit.weighted(g, x, float(beta))
    smooth = emit.weighted(g, log1p_exp(g, scaled), 1 / float(beta))
    return emit.choose(g, emit.arithmetic(g, "gt", scaled, float(threshold)), x, smooth)


def log1p_exp(g: Builder, x: Tensor) -> Tensor:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which overflows on neither side.

    Both parts are chosen by one comparison: the gradient is sigmoid(x), at 0 too, where those of
    max and |x| would each be zero.
    """
    positive = emit.arithmetic(g, "gt", x, 0.0)
    exponent = emit.choose(g, positive, emit.unary("neg")(g, x), x)
    tail = emit.unary("log1p")(g, emit.unary("exp")(g, exponent))
    return emit.arithmetic(g, "add", emit.choose(g, positive, x, 0.0), tail)


def log_sigmoid(g: Builder, x: Tensor) -> Tensor:
    """log(sigmoid(x)) = -softplus(-x)."""
    return emit.unary("neg")(g, softplus(g, emit.unary("neg")(g, x)))


def softsign(g: Builder, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return emit.arithmetic(g, "div", x, emit.arithmetic(g, "add", emit.unary("abs")(g, x), 1.0))


def mish(g: Builder, x: Tensor) -> Tensor:
    """x tanh(softplus(x))."""
    return emit.arithmetic(g, "mul", x, emit.unary("tanh")(g, softplus(g, x)))


def threshold(g: Builder, x: Tensor, threshold: Number = 1.0, value: Number = 0.0) -> Tensor:
    """x above the threshold, else the value."""
    return emit.choose(g, emit.arithmetic(g, "le", x, float(threshold)), float(value), x)


def clip(g: Builder, op: str, x: Tensor, low: float, high: float) -> Tensor:
    """Limit to [low, high] by `clamp` or `hardtanh`, which differ in the gradient on the bounds."""
    if x.dtype is F32:
        return emit.elementwise(g, op, x, min=low, max=high)
    for extreme, bound in (("maximum", low), ("minimum", high)):
        if math.isfinite(bound):
            if bound != int(bound):
                raise Unsupported("clamping integers to a fraction; convert to float32 first")
            x = emit.arithmetic(g, extreme, x, int(bound))
    return x


def relu6(g: Builder, x: Tensor) -> Tensor:
    """x limited to [0, 6]; on the bounds the gradient is 0."""
    return clip(g, "hardtanh", x, low=0.0, high=6.0)


def dropout(g: Builder, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the elements and scale the rest up; pass everything in evaluation mode.

    The numbers come from the input `seed` and differ from the framework's; each dropout of a model
    draws from a stream of its own.
    """
    if not train or p == 0:
        return Tensor(x.value, x.layout, x.copies)
    seed = seed_input(g)
    return Tensor(g.dropout(x.value, seed, p=float(p), stream=next_stream(g)), x.layout)
