"""ATen's activations that our IR composes from elementwise ops."""

import math

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, plain, reshape
from pockengine.frontends.torch.aten.registry import Context, aten


def _apply(ctx: Context, op: str, *operands: Operand) -> Tensor:
    return emit.arithmetic(ctx.g, op, *operands)


def _unary(ctx: Context, op: str, x: Tensor) -> Tensor:
    return emit.unary(op)(ctx.g, x)


@aten("silu.default")
def silu(ctx: Context, x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return emit_activation.silu(ctx.g, x)


@aten("gelu.default")
def gelu(ctx: Context, x: Tensor, approximate: str) -> Tensor:
    """x Φ(x) with Φ the normal distribution, exact or by the tanh formula."""
    return emit_activation.gelu(ctx.g, x, approximate)


@aten("elu.default")
def elu(ctx: Context, x: Tensor, alpha: Number, scale: Number, input_scale: Number) -> Tensor:
    """Scale times x above zero, else alpha (exp(input_scale x) - 1)."""
    return emit_activation.elu(ctx.g, x, alpha, scale, input_scale)


@aten("celu.default")
def celu(ctx: Context, x: Tensor, alpha: Number) -> Tensor:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return emit_activation.celu(ctx.g, x, alpha)


@aten("selu.default")
def selu(ctx: Context, x: Tensor) -> Tensor:
    """Elu with the constants that keep mean and variance."""
    return elu(ctx, x, emit_activation.SELU_ALPHA, emit_activation.SELU_SCALE, 1.0)


@aten("leaky_relu.default")
def leaky_relu(ctx: Context, x: Tensor, negative_slope: Number) -> Tensor:
    """x above zero, else slope x."""
    return emit_activation.leaky_relu(ctx.g, x, negative_slope)


@aten("prelu.default")
def prelu(ctx: Context, x: Tensor, weight: Tensor) -> Tensor:
    """x above zero, else weight x; one weight, or one for each of dimension 1."""
    slope = reshape(ctx.g, weight, (weight.size,) + (1,) * max(x.rank - 2, 0) if x.rank else ())
    return emit_activation.choose(ctx.g, _apply(ctx, "gt", x, 0.0), x, _apply(ctx, "mul", x, slope))


@aten("softplus.default")
def softplus(ctx: Context, x: Tensor, beta: Number, threshold: Number) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold."""
    return emit_activation.softplus(ctx.g, x, beta, threshold)


@aten("log_sigmoid.default")
def log_sigmoid(ctx: Context, x: Tensor) -> Tensor:
    """log(sigmoid(x)) = -softplus(-x)."""
    return _unary(ctx, "neg", softplus(ctx, _unary(ctx, "neg", x), 1.0, math.inf))


@aten("mish.default")
def mish(ctx: Context, x: Tensor) -> Tensor:
    """x tanh(softplus(x))."""
    return emit_activation.mish(ctx.g, x)


@aten("threshold.default")
def threshold(ctx: Context, x: Tensor, threshold: Number, value: Number) -> Tensor:
    """x above the threshold, else the value."""
    return emit_activation.threshold(ctx.g, x, threshold, value)


@aten("glu.default")
def glu(ctx: Context, x: Tensor, dim: int) -> Tensor:
    """First half times the sigmoid of the second half along a dimension."""
    half = x.shape[dim] // 2
    first = emit.slice_dim(ctx.g, x, dim, 0, half)
    second = emit.slice_dim(ctx.g, x, dim, half, 2 * half)
    return _apply(ctx, "mul", first, _unary(ctx, "sigmoid", second))


@aten("dropout.default")
def dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the elements and scale the rest up; pass everything in evaluation mode."""
    return emit_activation.dropout(ctx.g, x, p, train)


@aten("feature_dropout.default")
def feature_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the channels of (N, C, ...) and scale the rest up."""
    if not train or p == 0:
        return Tensor(x.value, x.layout, x.copies)
    return _apply(ctx, "mul", x, _kept(ctx, x, p, whole_channels=True))


@aten("alpha_dropout.default")
def alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Set a share p of the elements to selu's limit and restore mean and variance."""
    return _alpha_dropout(ctx, x, p if train else 0.0, whole_channels=False)


@aten("feature_alpha_dropout.default")
def feature_alpha_dropout(ctx: Context, x: Tensor, p: float, train: bool) -> Tensor:
    """Set a share p of the channels to selu's limit and restore mean and variance."""
    return _alpha_dropout(ctx, x, p if train else 0.0, whole_channels=True)


def _alpha_dropout(ctx: Context, x: Tensor, p: float, *, whole_channels: bool) -> Tensor:
    """Return a x + b where kept, else a limit + b.

    What `_kept` gives is 1 in prediction, where dropout is no more: x itself.
    """
    if p in (0, 1):
        return Tensor(x.value, x.layout, x.copies) if p == 0 else _apply(ctx, "mul", x, 0.0)
    limit = -emit_activation.SELU_ALPHA * emit_activation.SELU_SCALE
    a = 1 / math.sqrt((1 - p) * (1 + p * limit * limit))
    b = -a * p * limit
    kept = _kept(ctx, x, p, whole_channels)
    survivor = _apply(ctx, "add", emit.weighted(ctx.g, x, a), b)
    present = emit_activation.choose(ctx.g, _apply(ctx, "gt", kept, 1.0), survivor, x)
    return emit_activation.choose(ctx.g, _apply(ctx, "lt", kept, 0.5), a * limit + b, present)


def _kept(ctx: Context, x: Tensor, p: float, whole_channels: bool) -> Tensor:
    """Draw 0 or 1 / (1 - p) for each element, or for each channel of (N, C, ...)."""
    shape = (*x.shape[:2], *(1,) * (x.rank - 2)) if whole_channels else x.shape
    ones = plain(ctx.g.constant(np.ones(shape, np.float32)))
    return emit_activation.dropout(ctx.g, ones, p, train=True)


@aten("one_hot.default")
def one_hot(ctx: Context, x: Tensor, num_classes: int) -> Tensor:
    """Give each index a row that is one at its place."""
    if num_classes < 1:
        raise Unsupported("one_hot without a number of classes; pass num_classes")
    places = plain(ctx.g.constant(_arange(num_classes, x)))
    wide = reshape(ctx.g, x, (*x.shape, 1))
    return emit.cast(ctx.g, emit.arithmetic(ctx.g, "eq", wide, places), x.dtype)


def _arange(count: int, like: Tensor) -> np.ndarray:
    return np.arange(count, dtype=like.dtype.numpy)
