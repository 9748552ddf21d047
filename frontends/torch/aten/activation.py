"""ATen's activations that our IR composes from elementwise ops."""

import math

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("prelu.default")
def prelu(ctx: AtenContext, x: Tensor, weight: Tensor) -> Tensor:
    """x above zero, else weight x; one weight, or one for each of dimension 1."""
    slope = reshape(ctx.g, weight, (weight.size,) + (1,) * max(x.rank - 2, 0) if x.rank else ())
    return emit_activation.prelu(ctx.g, x, slope)


@aten("glu.default")
def glu(ctx: AtenContext, x: Tensor, dim: int) -> Tensor:
    """First half times the sigmoid of the second half along a dimension."""
    half = x.shape[dim] // 2
    first = emit.slice_dim(ctx.g, x, dim, start=0, stop=half)
    second = emit.slice_dim(ctx.g, x, dim, start=half, stop=2 * half)
    return emit.arithmetic(ctx.g, "mul", first, emit.unary("sigmoid")(ctx.g, second))


@aten("dropout.default")
def dropout(ctx: AtenContext, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the elements and scale the rest up; pass everything in evaluation mode."""
    return emit_activation.dropout(ctx.g, x, p, train)


@aten("feature_dropout.default")
def feature_dropout(ctx: AtenContext, x: Tensor, p: float, train: bool) -> Tensor:
    """Zero a share p of the channels of (N, C, ...) and scale the rest up."""
    if not train or p == 0:
        return Tensor(x.value, x.layout, x.copies)
    return emit.arithmetic(ctx.g, "mul", x, _survival(ctx, x, p, whole_channels=True))


@aten("alpha_dropout.default")
def alpha_dropout(ctx: AtenContext, x: Tensor, p: float, train: bool) -> Tensor:
    """Set a share p of the elements to selu's limit and restore mean and variance."""
    return _alpha_dropout(ctx, x, p if train else 0.0, whole_channels=False)


@aten("feature_alpha_dropout.default")
def feature_alpha_dropout(ctx: AtenContext, x: Tensor, p: float, train: bool) -> Tensor:
    """Set a share p of the channels to selu's limit and restore mean and variance."""
    return _alpha_dropout(ctx, x, p if train else 0.0, whole_channels=True)


def _alpha_dropout(ctx: AtenContext, x: Tensor, p: float, *, whole_channels: bool) -> Tensor:
    """Return a x + b for kept elements, else a limit + b.

    In prediction there is no dropout: `_survival` returns 1, and the result is x.
    """
    if p == 0:
        return Tensor(x.value, x.layout, x.copies)
    if p == 1:
        return emit.arithmetic(ctx.g, "mul", x, _survival(ctx, x, p, whole_channels))
    limit = -emit_activation.SELU_ALPHA * emit_activation.SELU_SCALE
    a = 1 / math.sqrt((1 - p) * (1 + p * limit * limit))
    b = -a * p * limit
    survival = _survival(ctx, x, p, whole_channels)
    survivor = emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, x, a), b)
    present = emit.choose(ctx.g, emit.arithmetic(ctx.g, "gt", survival, 1.0), survivor, x)
    return emit.choose(ctx.g, emit.arithmetic(ctx.g, "lt", survival, 0.5), a * limit + b, present)


def _survival(ctx: AtenContext, x: Tensor, p: float, whole_channels: bool) -> Tensor:
    """Draw 0 or 1 / (1 - p) for each element, or for each channel of (N, C, ...); 0 if p is 1."""
    shape = (*x.shape[:2], *(1,) * (x.rank - 2)) if whole_channels else x.shape
    ones = plain(ctx.g.constant(np.ones(shape, np.float32)))
    return emit_activation.dropout(ctx.g, ones, p, train=True)


@aten("one_hot.default")
def one_hot(ctx: AtenContext, x: Tensor, num_classes: int) -> Tensor:
    """Return one row per index, with a one at its place."""
    if num_classes < 1:
        raise Unsupported("one_hot without a number of classes; pass num_classes")
    places = plain(ctx.g.constant(_arange(num_classes, x)))
    wide = reshape(ctx.g, x, (*x.shape, 1))
    return emit.cast(ctx.g, emit.arithmetic(ctx.g, "eq", wide, places), x.dtype)


def _arange(count: int, like: Tensor) -> np.ndarray:
    return np.arange(count, dtype=like.dtype.numpy)
