"""Distributions that need more than a formula on uniform numbers, and random orders and choices."""

import math
from collections.abc import Callable

import numpy as np

from pockengine.compiler.ir import F32, Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.order import order_of
from pockengine.frontends.emit.random import LEAST, box_muller, exponential, uniform
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

LOG_TINY = -87.0
"""Logarithm of a number that f32 represents with full precision."""

LOG_SMALL = -40.0
"""Logarithm of a number beside which 1 + x is 1."""

TRIES = 8
"""Of drawing by rejection: one is rejected in twenty at most, so that all are in 4e-11."""

Draw = Callable[[str, Shape], Tensor]
"""Draws uniform numbers of a shape for a named use; each use has its own stream."""


def gumbel(g: Builder, shape: Shape) -> Tensor:
    """Draw numbers whose argmax has the probability of its weight."""
    return emit.unary("neg")(g, emit.unary("log")(g, exponential(g, shape)))


def truncated_normal(g: Builder, shape: Shape) -> Tensor:
    """Draw normal numbers that are no farther from 0 than 2, by the inverse of erf."""
    most = math.erf(math.sqrt(2.0))
    inside = emit.arithmetic(g, "sub", emit.weighted(g, uniform(g, shape), 2 * most), most)
    return emit.weighted(g, emit.unary("erf_inv")(g, inside), math.sqrt(2.0))


def log_gamma(g: Builder, shape: Shape, alpha: emit.Operand, draw: Draw) -> Tensor:
    """Draw the logarithm of numbers of the gamma distribution of shape `alpha` and scale 1.

    By the method of Marsaglia and Tsang (2000), which rejects some draws: `TRIES` are computed, and
    the first accepted one is taken. Below an alpha of 1 it is that of alpha + 1 times u^(1 /
    alpha). The gradient of alpha is that of the drawn quantile (Figurnov et al. 2018), as in the
    frameworks.
    """
    whole = emit.arithmetic(g, "mul", alpha, plain(g.constant(np.ones(shape, np.float32))))
    if not emit.trains(g, whole):
        return _log_gamma(g, shape, whole, draw)
    fixed = emit.unary("stop_gradient")(g, whole)
    size = _log_gamma(g, shape, fixed, draw)
    change = emit.arithmetic(g, "sub", whole, fixed)
    change = emit.arithmetic(g, "mul", change, _slope_of_quantile(g, fixed, size))
    return emit.arithmetic(g, "add", size, change)


def _slope_of_quantile(g: Builder, alpha: Tensor, size: Tensor) -> Tensor:
    """d log x / d alpha where igamma(alpha, x) stays; `size` is log x.

    For a small x, igamma is x^alpha / gamma(alpha + 1).
    """
    x = emit.unary("exp")(g, size)
    power = emit.arithmetic(g, "sub", emit.arithmetic(g, "mul", alpha, size), x)
    density = emit.unary("exp")(g, emit.arithmetic(g, "sub", power, emit.unary("lgamma")(g, alpha)))
    slope = emit.arithmetic(g, "div", emit.arithmetic(g, "igamma_da", alpha, x), density)
    above = emit.unary("digamma")(g, emit.arithmetic(g, "add", alpha, 1.0))
    least = emit.arithmetic(g, "div", emit.arithmetic(g, "sub", size, above), alpha)
    tiny = emit.arithmetic(g, "lt", size, LOG_SMALL)
    return emit.unary("neg")(g, emit.choose(g, tiny, least, slope))


def _log_gamma(g: Builder, shape: Shape, alpha: Tensor, draw: Draw) -> Tensor:
    small = emit.arithmetic(g, "lt", alpha, 1.0)
    raised = emit.arithmetic(g, "add", alpha, emit.cast(g, small, F32))
    d = emit.arithmetic(g, "sub", raised, 1 / 3)
    candidates = _marsaglia(g, reshape(g, d, (*shape, 1)), draw)
    size = emit.arithmetic(g, "add", emit.unary("log")(g, d), reshape(g, candidates, shape))
    uniform = emit.arithmetic(g, "sub", 1.0, draw("power", shape))  # never zero
    power = emit.arithmetic(g, "div", emit.unary("log")(g, uniform), alpha)
    return emit.arithmetic(g, "add", size, emit.choose(g, small, power, 0.0))


def _marsaglia(g: Builder, d: Tensor, draw: Draw) -> Tensor:
    """Return log v of the first accepted try, whose d v is of the gamma distribution."""
    shape = (*d.shape[:-1], TRIES)
    x = box_muller(g, draw("radius", shape), draw("angle", shape))
    slope = emit.unary("rsqrt")(g, emit.weighted(g, d, 9.0))
    base = emit.arithmetic(g, "add", emit.arithmetic(g, "mul", x, slope), 1.0)
    above = emit.arithmetic(g, "gt", base, LEAST)
    log_v = emit.weighted(g, emit.unary("log")(g, emit.arithmetic(g, "maximum", base, LEAST)), 3.0)
    gain = emit.arithmetic(g, "sub", log_v, emit.unary("expm1")(g, log_v))
    bound = emit.arithmetic(g, "mul", gain, d)
    bound = emit.arithmetic(g, "add", bound, emit.weighted(g, emit.unary("square")(g, x), 0.5))
    positive = emit.arithmetic(g, "sub", 1.0, draw("accept", shape))
    within = emit.arithmetic(g, "lt", emit.unary("log")(g, positive), bound)
    accepted = emit.cast(g, emit.arithmetic(g, "logical_and", above, within), F32)
    first = g.argmax(framework_order(g, accepted), axis=len(shape) - 1)
    place = reshape(g, plain(first), (*shape[:-1], 1))
    values = framework_order(g, log_v), framework_order(g, place)
    return plain(g.take_along(*values, axis=len(shape) - 1))


def gamma(g: Builder, shape: Shape, alpha: emit.Operand) -> Tensor:
    """Draw numbers of the gamma distribution of shape `alpha` and scale 1; none is 0."""
    size = log_gamma(g, shape, alpha, lambda _, drawn: uniform(g, drawn))
    return emit.unary("exp")(g, emit.arithmetic(g, "maximum", size, LOG_TINY))


def categorical(g: Builder, logits: Tensor, count: int, *, replacement: bool) -> Tensor:
    """Draw `count` indices per row, with the probabilities of the logits' softmax; i64.

    By the largest of the logits with Gumbel noise; without replacement by the `count` largest
    (Vieira 2014), which draws in sequence.
    """
    *lead, size = logits.shape
    if not replacement:
        if count > size:
            raise Unsupported(f"{count} places of {size} without replacement")
        noisy = emit.arithmetic(g, "add", logits, gumbel(g, logits.shape))
        return emit.slice_dim(g, order_of(g, noisy, descending=True), -1, start=0, stop=count)
    wide = reshape(g, logits, (*lead, 1, size))
    noisy = emit.arithmetic(g, "add", wide, gumbel(g, (*lead, count, size)))
    return plain(g.argmax(framework_order(g, noisy), axis=len(lead) + 1))


def permutation(g: Builder, count: int) -> Tensor:
    """Draw an order of `count` things; i64."""
    return order_of(g, uniform(g, (count,)), descending=False)
