"""ATen operators of losses."""

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import loss as emit_loss
from pockengine.frontends.emit.loss import Classification, Reduction
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten

REDUCTIONS = (Reduction.NONE, Reduction.MEAN, Reduction.SUM)
"""By ATen's codes of a loss's reduction."""


@aten("cross_entropy_loss.default")
def cross_entropy_loss(
    ctx: AtenContext,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Cross entropy of logits and labels or class probabilities."""
    how = Classification(weight, ignore_index, label_smoothing, REDUCTIONS[reduction])
    if not target.dtype.is_float:
        return emit_loss.cross_entropy(ctx.g, x, target, how)
    if how.smoothing or how.weight is not None or how.reduction is Reduction.NONE:
        return _soft_cross_entropy(ctx, x, target, how)
    rows = x.value.type.size // x.shape[1 if x.rank > 1 else 0]
    mean = emit_loss.soft_cross_entropy(ctx.g, x, target)
    return emit.weighted(ctx.g, mean, float(rows)) if how.reduction is Reduction.SUM else mean


def _soft_cross_entropy(ctx: AtenContext, x: Tensor, target: Tensor, how: Classification) -> Tensor:
    """Sum -weight target log(softmax(x)) over the classes, the target smoothed before."""
    dim = 1 if x.rank > 1 else 0
    classes = x.shape[dim]
    if how.smoothing:
        share = emit.weighted(ctx.g, target, 1 - how.smoothing)
        target = emit.arithmetic(ctx.g, "add", share, how.smoothing / classes)
    terms = emit.arithmetic(ctx.g, "mul", target, emit.along_last(ctx.g, "log_softmax", x, dim))
    if how.weight is not None:
        shape = tuple(classes if other == dim else 1 for other in range(x.rank))
        terms = emit.arithmetic(ctx.g, "mul", terms, reshape(ctx.g, how.weight, shape))
    rows = emit.unary("neg")(ctx.g, emit.reduce(ctx.g, "reduce_sum", terms, (dim,), keepdims=False))
    if how.reduction is Reduction.NONE:
        return rows
    total = emit.reduce(ctx.g, "reduce_sum", rows, (), keepdims=False)
    mean = how.reduction is Reduction.MEAN  # over rows, whatever the weights are
    return emit.weighted(ctx.g, total, 1 / rows.size) if mean else total


@aten("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(
    ctx: AtenContext,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> Tensor:
    """Negative log likelihood of labels."""
    how = Classification(weight, ignore_index, 0.0, REDUCTIONS[reduction])
    return emit_loss.negative_log_likelihood(ctx.g, x, target, how)


@aten("mse_loss.default")
def mse_loss(ctx: AtenContext, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Squared differences: each, their mean or their sum."""
    difference = emit.arithmetic(ctx.g, "sub", x, target)
    squares = emit.unary("square")(ctx.g, difference)
    return _reduce_elements(ctx.g, squares, reduction)


@aten("l1_loss.default")
def l1_loss(ctx: AtenContext, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Absolute differences: each, their mean or their sum."""
    difference = emit.arithmetic(ctx.g, "sub", x, target)
    return _reduce_elements(ctx.g, emit.unary("abs")(ctx.g, difference), reduction)


@aten("smooth_l1_loss.default")
def smooth_l1_loss(
    ctx: AtenContext, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Squares of small differences (below beta), absolute values of large ones."""
    if beta == 0:
        return l1_loss(ctx, x, target, reduction)
    return _reduce_elements(ctx.g, _huber(ctx, x, target, delta=beta, factor=1 / beta), reduction)


@aten("huber_loss.default")
def huber_loss(ctx: AtenContext, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    """Squares of small differences (below delta), delta times absolute values of large ones."""
    return _reduce_elements(ctx.g, _huber(ctx, x, target, delta=delta, factor=1.0), reduction)


def _huber(ctx: AtenContext, x: Tensor, target: Tensor, delta: float, factor: float) -> Tensor:
    """Return d²/2 where |d| < delta, else delta (|d| - delta/2), times a factor."""
    g = ctx.g
    difference = emit.arithmetic(g, "sub", x, target)
    size = emit.unary("abs")(g, difference)
    square = emit.weighted(g, emit.unary("square")(g, difference), 0.5 * factor)
    line = emit.weighted(g, emit.arithmetic(g, "sub", size, 0.5 * delta), delta * factor)
    return emit.elementwise(g, "where", emit.arithmetic(g, "lt", size, delta), square, line)


@aten("binary_cross_entropy.default")
def binary_cross_entropy(
    ctx: AtenContext, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int
) -> Tensor:
    """-(target log x + (1 - target) log(1 - x)) with PyTorch's guards, weighted."""
    losses = emit.arithmetic(ctx.g, "binary_cross_entropy", x, target)
    if weight is not None:
        losses = emit.arithmetic(ctx.g, "mul", losses, weight)
    return _reduce_elements(ctx.g, losses, reduction)


@aten("binary_cross_entropy_with_logits.default")
def bce_with_logits(
    ctx: AtenContext,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    reduction: int,
) -> Tensor:
    """(1 - target) x + (1 + (pos_weight - 1) target) log(1 + exp(-x)), weighted."""
    g = ctx.g
    right = emit_activation.log1p_exp(g, emit.unary("neg")(g, x))
    if pos_weight is not None:
        more = emit.arithmetic(g, "mul", emit.arithmetic(g, "sub", pos_weight, 1.0), target)
        right = emit.arithmetic(g, "mul", emit.arithmetic(g, "add", more, 1.0), right)
    wrong = emit.arithmetic(g, "mul", emit.arithmetic(g, "sub", 1.0, target), x)
    losses = emit.arithmetic(g, "add", wrong, right)
    if weight is not None:
        losses = emit.arithmetic(g, "mul", losses, weight)
    return _reduce_elements(g, losses, reduction)


@aten("multilabel_margin_loss.default")
def multilabel_margin_loss(ctx: AtenContext, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Average, over the classes, the amount by which each non-label comes within 1 of each label.

    A row's labels end before its first -1.
    """
    g, classes = ctx.g, x.shape[-1] if x.rank else 1
    x, target = (reshape(g, part, (part.size // classes, classes)) for part in (x, target))
    ended = emit.cast(g, emit.arithmetic(g, "lt", target, 0), F32)
    behind = g.cumsum(framework_order(g, ended), axis=1)
    counts = emit.arithmetic(g, "eq", plain(behind), 0.0)
    places = framework_order(g, emit.arithmetic(g, "maximum", target, 0))
    labels = plain(g.take_along(framework_order(g, x), places, axis=1))
    column, row = (target.shape[0], classes, 1), (target.shape[0], 1, classes)
    counts = reshape(g, counts, column)
    every = plain(g.constant(np.arange(classes, dtype=target.dtype.numpy)))
    hit = emit.elementwise(
        g, "logical_and", emit.elementwise(g, "eq", reshape(g, target, column), every), counts
    )
    is_label = emit.reduce(g, "reduce_max", hit, [1], keepdims=True)
    near = emit.arithmetic(g, "sub", reshape(g, x, row), reshape(g, labels, column))
    short = emit.unary("relu")(g, emit.arithmetic(g, "add", near, 1.0))
    judged = emit.elementwise(g, "logical_and", counts, emit.unary("logical_not")(g, is_label))
    terms = emit.weighted(g, emit.choose(g, judged, short, 0.0), 1 / classes)
    rows = emit.reduce(g, "reduce_sum", terms, [1, 2], keepdims=False)
    return reshape(g, _reduce_elements(g, rows, reduction), ctx.shape)


@aten("pockengine.ctc_loss.default")
def ctc_loss(
    ctx: AtenContext,
    x: Tensor,
    labels: Tensor,
    lengths: Tensor,
    label_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Connectionist temporal classification of log-probabilities (T, N, C), a loss a sample."""
    return emit_loss.ctc_of_logarithms(
        ctx.g, x, labels, lengths=lengths, label_lengths=label_lengths, blank=blank
    )


def _reduce_elements(g: Builder, x: Tensor, reduction: int) -> Tensor:
    how = REDUCTIONS[reduction]
    if how is Reduction.NONE:
        return x
    op = "reduce_mean" if how is Reduction.MEAN else "reduce_sum"
    return emit.reduce(g, op, x, (), keepdims=False)
