"""ATen operators that draw random numbers, by our own counter and the step's seed.

Each operator has its own stream. In prediction a module's own noise stays, as in its code, but code
that implements dropout (`idioms/drop_path.py`) is removed.
"""

import math
from collections.abc import Callable
from typing import Any

from pockengine.compiler.ir import F32, I32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import Number, Operand, distributions
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import random as emit_random
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten

MOST_DRAWN = 1 << 24
"""A uniform number has 24 random bits."""

COUNTS = ("poisson.default", "binomial.default")


def _checked(ctx: AtenContext) -> None:
    if ctx.dtype is not F32:
        raise Unsupported("random numbers of a type other than float32; draw floats and convert")


@aten("rand.default", "rand_like.default")
def rand(ctx: AtenContext, **_: Any) -> Tensor:
    """Draw numbers in [0, 1)."""
    _checked(ctx)
    return emit_random.uniform(ctx.g, ctx.shape)


@aten("uniform.default")
def uniform(ctx: AtenContext, **bounds: Any) -> Tensor:
    """Draw numbers between two bounds."""
    low, high = bounds["from"], bounds["to"]
    unit = emit.weighted(ctx.g, rand(ctx), high - low)
    return unit if low == 0 else emit.arithmetic(ctx.g, "add", unit, float(low))


@aten("randn.default", "randn_like.default")
def randn(ctx: AtenContext, **_: Any) -> Tensor:
    """Draw normal numbers of mean 0 and variance 1."""
    _checked(ctx)
    return emit_random.normal(ctx.g, ctx.shape)


@aten(
    "normal_.default",
    "normal_functional.default",
    "normal.Tensor_Tensor",
    "normal.Tensor_float",
    "normal.float_Tensor",
    "normal.float_float",
)
def normal(ctx: AtenContext, mean: Operand, std: Operand, **_: Any) -> Tensor:
    """Draw normal numbers; mean and deviation may differ by element."""
    scaled = emit.arithmetic(ctx.g, "mul", randn(ctx), std)
    return scaled if mean == 0 else emit.arithmetic(ctx.g, "add", scaled, mean)


@aten("log_normal.default")
def log_normal(ctx: AtenContext, mean: float, std: float, **_: Any) -> Tensor:
    """Draw numbers whose logarithm is normal."""
    return emit.unary("exp")(ctx.g, normal(ctx, mean, std))


@aten("exponential.default")
def exponential(ctx: AtenContext, lambd: float, **_: Any) -> Tensor:
    """Draw numbers above zero of mean 1 / lambd."""
    _checked(ctx)
    return emit.weighted(ctx.g, emit_random.exponential(ctx.g, ctx.shape), 1 / lambd)


@aten("geometric.default")
def geometric(ctx: AtenContext, p: float, **_: Any) -> Tensor:
    """Draw from the geometric distribution of probability p."""
    _checked(ctx)
    tries = emit.weighted(
        ctx.g, emit_random.exponential(ctx.g, ctx.shape), -1 / math.log1p(-p) if p < 1 else 0.0
    )
    return emit.arithmetic(ctx.g, "maximum", emit.unary("ceil")(ctx.g, tries), 1.0)


@aten("bernoulli.default")
def bernoulli(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Draw 1 with each element's probability, else 0."""
    _checked(ctx)
    return emit_random.bernoulli(ctx.g, ctx.shape, x)


@aten("bernoulli.p", "bernoulli_.float", "bernoulli_.Tensor", "bernoulli.Tensor")
def bernoulli_of(ctx: AtenContext, x: Tensor, p: Operand, **_: Any) -> Tensor:
    """Draw 1 with probability p, else 0, in x's shape."""
    drawn = emit_random.bernoulli(ctx.g, ctx.shape, p)
    return drawn if ctx.dtype is None else emit.cast(ctx.g, drawn, ctx.dtype)


@aten(
    "randint.default",
    "randint.low",
    "randint_like.default",
    "randint_like.low_dtype",
    "random.from",
    "random.to",
)
def randint(ctx: AtenContext, **bounds: Any) -> Tensor:
    """Draw integers in [`low`, `high`)."""
    low = bounds.get("low", bounds.get("from", 0)) or 0
    high = bounds.get("high", bounds.get("to"))
    if ctx.dtype not in (F32, I32, I64) or high is None or high - low > MOST_DRAWN:
        raise Unsupported(f"random integers of so wide a range; {MOST_DRAWN} values are the most")
    unit = emit.weighted(ctx.g, emit_random.uniform(ctx.g, ctx.shape), high - low)
    whole = emit.cast(ctx.g, emit.unary("floor")(ctx.g, unit), ctx.dtype)
    return whole if low == 0 else emit.arithmetic(ctx.g, "add", whole, low)


@aten("rrelu.default")
def rrelu(
    ctx: AtenContext, x: Tensor, lower: Number, upper: Number, training: bool, **_: Any
) -> Tensor:
    """Scale negative elements by a random slope, the mean one in evaluation mode."""
    slope: Operand = (lower + upper) / 2
    if training:
        slope = emit.arithmetic(
            ctx.g,
            "add",
            emit.weighted(ctx.g, emit_random.uniform(ctx.g, x.shape), upper - lower),
            float(lower),
        )
    return emit_activation.prelu(ctx.g, x, slope)


@aten("_standard_gamma.default")
def gamma(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Draw numbers of the gamma distribution, of scale 1."""
    _checked(ctx)
    return distributions.gamma(ctx.g, x.shape, x)


@aten("_sample_dirichlet.default")
def dirichlet(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Draw shares of a whole along the last dimension."""
    if emit.trains(ctx.g, x):
        raise Unsupported("Dirichlet draws whose concentration trains; divide Gamma's by their sum")
    parts = gamma(ctx, x)
    whole = emit.reduce(ctx.g, "reduce_sum", parts, [-1], keepdims=True)
    return emit.arithmetic(ctx.g, "div", parts, whole)


@aten("multinomial.default")
def multinomial(
    ctx: AtenContext, x: Tensor, num_samples: int, replacement: bool = False, **_: Any
) -> Tensor:
    """Draw places of each line by their weights."""
    chances = emit.unary("log")(ctx.g, x)
    again = replacement or num_samples == 1
    return distributions.categorical(ctx.g, chances, num_samples, replacement=again)


@aten("randperm.default")
def randperm(ctx: AtenContext, n: int, **_: Any) -> Tensor:
    """Draw an order."""
    return emit.cast(ctx.g, distributions.permutation(ctx.g, n), ctx.dtype or I64)


def _define_refusal(overload: str) -> Callable[..., Tensor]:
    @aten(overload)
    def rule(ctx: AtenContext, **_: Any) -> Tensor:
        raise Unsupported("random counts, which take as many draws as they say; pass them as input")

    return rule


for _overload in COUNTS:
    _define_refusal(_overload)
