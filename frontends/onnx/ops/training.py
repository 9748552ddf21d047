"""Operators of the domain ai.onnx.preview.training: optimizers as plain functions, and gradients.

An optimizer takes the rate R, the count T of earlier updates, then for n tensors all values, all
gradients and all states. It returns all new values and all new states.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import TRAINING_DOMAIN, OnnxContext, onnx_op

Step = Callable[..., tuple[Tensor, ...]]
"""From (value, gradient, *states) to (new value, *new states)."""


def _sum(ctx: OnnxContext, a: Tensor, factor: float, b: Tensor, weight: float) -> Tensor:
    """Factor a + weight b."""
    return emit.arithmetic(
        ctx.g, "add", emit.weighted(ctx.g, a, factor), emit.weighted(ctx.g, b, weight)
    )


def _regularized(ctx: OnnxContext, x: Tensor, gradient: Tensor, coefficient: float) -> Tensor:
    """Gradient + coefficient x."""
    return _sum(ctx, x, coefficient, b=gradient, weight=1.0) if coefficient else gradient


def _for_each(tensors: Sequence[Tensor], states: int, step: Step) -> list[Tensor]:
    """Apply an optimizer to each of its tensors, which are grouped by kind."""
    kinds = 2 + states
    count = len(tensors) // kinds
    if not count or len(tensors) != count * kinds:
        raise Unsupported(f"{len(tensors)} tensors, which are not {kinds} for each value")
    groups = [tensors[index * count : (index + 1) * count] for index in range(kinds)]
    results = [step(*row) for row in zip(*groups, strict=True)]
    return [tensor for kind in zip(*results, strict=True) for tensor in kind]


@onnx_op("Adagrad", domain=TRAINING_DOMAIN)
def adagrad(
    ctx: OnnxContext,
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> list[Tensor]:
    """H += G²;  X -= R / (1 + T decay_factor) G / (sqrt(H) + epsilon)."""
    steps = emit.weighted(ctx.g, emit.cast(ctx.g, count, F32), decay_factor)
    slowed = (
        emit.arithmetic(ctx.g, "div", rate, emit.arithmetic(ctx.g, "add", steps, 1.0))
        if decay_factor
        else rate
    )

    def step(x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        gradient = _regularized(ctx, x, gradient, norm_coefficient)
        squares = emit.arithmetic(ctx.g, "add", squares, emit.unary("square")(ctx.g, gradient))
        below = emit.arithmetic(ctx.g, "add", emit.unary("sqrt")(ctx.g, squares), epsilon)
        move = emit.arithmetic(ctx.g, "mul", slowed, emit.arithmetic(ctx.g, "div", gradient, below))
        return emit.arithmetic(ctx.g, "sub", x, move), squares

    return _for_each(tensors, 1, step)


@onnx_op("Adam", domain=TRAINING_DOMAIN)
def adam(
    ctx: OnnxContext,
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> list[Tensor]:
    """V = alpha V + (1 - alpha) G;  H = beta H + (1 - beta) G²;  X -= R' V / (sqrt(H) + epsilon).

    R' is R sqrt(1 - beta^T) / (1 - alpha^T), and R itself where T is 0.
    """
    adjusted = _adam_rate(ctx, rate, emit.cast(ctx.g, count, F32), alpha=alpha, beta=beta)

    def step(x: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        gradient = _regularized(ctx, x, gradient, norm_coefficient)
        square = emit.unary("square")(ctx.g, gradient)
        first = _sum(ctx, first, alpha, b=gradient, weight=1 - alpha)
        second = _sum(ctx, second, beta, b=square, weight=1 - beta)
        below = emit.arithmetic(ctx.g, "add", emit.unary("sqrt")(ctx.g, second), epsilon)
        move = emit.arithmetic(ctx.g, "mul", adjusted, emit.arithmetic(ctx.g, "div", first, below))
        moved = emit.arithmetic(ctx.g, "sub", x, move)
        return emit.weighted(ctx.g, moved, 1 - norm_coefficient_post), first, second

    return _for_each(tensors, 2, step)


def _adam_rate(ctx: OnnxContext, rate: Tensor, count: Tensor, alpha: float, beta: float) -> Tensor:
    """Correct the rate for moments that began at zero."""
    left = [
        emit.arithmetic(
            ctx.g, "sub", 1.0, emit.unary("exp")(ctx.g, emit.weighted(ctx.g, count, logarithm))
        )
        for logarithm in (math.log(alpha), math.log(beta))
    ]
    corrected = emit.arithmetic(
        ctx.g,
        "div",
        emit.arithmetic(ctx.g, "mul", rate, emit.unary("sqrt")(ctx.g, left[1])),
        left[0],
    )
    begun = emit.arithmetic(ctx.g, "gt", count, 0.0)
    return emit.elementwise(ctx.g, "where", begun, corrected, rate)


@onnx_op("Momentum", domain=TRAINING_DOMAIN)
def momentum(
    ctx: OnnxContext,
    rate: Tensor,
    count: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> list[Tensor]:
    """V = alpha V + beta G (G where T is 0);  X -= R V, or R (G + alpha V) in mode nesterov."""
    if mode not in ("standard", "nesterov"):
        raise Unsupported(f"momentum in mode {mode!r}")
    begun = emit.arithmetic(ctx.g, "gt", count, 0)
    share = emit.elementwise(
        ctx.g, "where", begun, *(emit.scalar(ctx.g, part, F32) for part in (beta, 1.0))
    )

    def step(x: Tensor, gradient: Tensor, velocity: Tensor) -> tuple[Tensor, ...]:
        gradient = _regularized(ctx, x, gradient, norm_coefficient)
        new = emit.arithmetic(ctx.g, "mul", gradient, share)
        velocity = _sum(ctx, velocity, alpha, b=new, weight=1.0)
        ahead = (
            velocity if mode == "standard" else _sum(ctx, gradient, 1.0, b=velocity, weight=alpha)
        )
        return emit.arithmetic(
            ctx.g, "sub", x, emit.arithmetic(ctx.g, "mul", rate, ahead)
        ), velocity

    return _for_each(tensors, 1, step)


@onnx_op("Gradient", domain=TRAINING_DOMAIN)
def gradient(
    ctx: OnnxContext, *inputs: Tensor, xs: list[str], y: str, zs: list[str] | None = None
) -> list[Tensor]:
    """Differentiate the scalar `y` with respect to the tensors `xs`; `zs` are constant.

    The inputs are the values of xs and zs; only those that `y` was computed from can be meant.
    """
    wrt = [ctx.find(name) for name in xs]
    if any(source.value is not own.value for source, own in zip(inputs, wrt, strict=False)):
        raise Unsupported("the gradient at other values than those that the graph has computed")
    top = ctx.find(y)
    gradients = backward(ctx.g, top.value, {x.value: None for x in wrt})
    zeros = partial(emit.weighted, ctx.g, factor=0.0)
    return [Tensor(gradients[x.value], x.layout) if x.value in gradients else zeros(x) for x in wrt]
