"""ATen operators of losses."""

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit, emit_nn
from pockengine.frontends.aten.registry import Context, aten
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.layout import Tensor

NONE, MEAN, SUM = 0, 1, 2
"""ATen's codes of a loss's reduction."""

IGNORE_INDEX = -100
"""PyTorch's default for the label that does not count."""


@aten("cross_entropy_loss.default")
def cross_entropy_loss(
    ctx: Context,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Cross entropy of logits and labels or class probabilities, as a mean or a sum."""
    _reject_options(weight, ignore_index)
    g, rows = ctx.g, x.value.type.size // x.shape[1 if x.rank > 1 else 0]
    if target.dtype.is_float:
        if label_smoothing:
            raise Unsupported("label smoothing of class probabilities; smooth them beforehand")
        return _reduced(g, emit_nn.soft_cross_entropy(g, x, target), reduction, rows)
    loss = emit_nn.cross_entropy(g, x, target)
    if label_smoothing:
        log_probabilities = emit.along_last(g, "log_softmax", x, 1 if x.rank > 1 else 0)
        average = emit.reduce(g, "reduce_mean", log_probabilities, (), keepdims=False)
        uniform = emit.weighted(g, average, -label_smoothing)
        loss = emit.arithmetic(g, "add", emit.weighted(g, loss, 1 - label_smoothing), uniform)
    return _reduced(g, loss, reduction, rows)


@aten("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def nll_loss(
    ctx: Context,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> Tensor:
    """Negative log likelihood of a log softmax, which together are a cross entropy."""
    _reject_options(weight, ignore_index)
    node = x.value.node
    dim = 1 if x.rank > 1 else 0
    if node is None or node.op != "log_softmax" or x.layout[-1] != dim:
        raise Unsupported("negative log likelihood of anything but log_softmax over the classes")
    logits = Tensor(node.operands[0], x.layout)
    rows = x.value.type.size // x.shape[dim]
    return _reduced(ctx.g, emit_nn.cross_entropy(ctx.g, logits, target), reduction, rows)


@aten("mse_loss.default")
def mse_loss(ctx: Context, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Squared differences: each, their mean or their sum."""
    difference = emit.arithmetic(ctx.g, "sub", x, target)
    squares = emit.unary("square")(ctx.g, difference)
    return _reduce_elements(ctx.g, squares, reduction)


@aten("l1_loss.default")
def l1_loss(ctx: Context, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    """Absolute differences: each, their mean or their sum."""
    difference = emit.arithmetic(ctx.g, "sub", x, target)
    return _reduce_elements(ctx.g, emit.unary("abs")(ctx.g, difference), reduction)


@aten("smooth_l1_loss.default")
def smooth_l1_loss(ctx: Context, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """Squares of small differences (below beta), absolute values of large ones."""
    if beta == 0:
        return l1_loss(ctx, x, target, reduction)
    return _reduce_elements(ctx.g, _huber(ctx, x, target, beta, 1 / beta), reduction)


@aten("huber_loss.default")
def huber_loss(ctx: Context, x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    """Squares of small differences (below delta), delta times absolute values of large ones."""
    return _reduce_elements(ctx.g, _huber(ctx, x, target, delta, 1.0), reduction)


def _huber(ctx: Context, x: Tensor, target: Tensor, delta: float, factor: float) -> Tensor:
    """Return d²/2 where |d| < delta, else delta (|d| - delta/2), times a factor."""
    g = ctx.g
    difference = emit.arithmetic(g, "sub", x, target)
    size = emit.unary("abs")(g, difference)
    square = emit.weighted(g, emit.unary("square")(g, difference), 0.5 * factor)
    line = emit.weighted(g, emit.arithmetic(g, "sub", size, 0.5 * delta), delta * factor)
    return emit.elementwise(g, "where", emit.arithmetic(g, "lt", size, delta), square, line)


@aten("binary_cross_entropy_with_logits.default")
def bce_with_logits(
    ctx: Context,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    reduction: int,
) -> Tensor:
    """max(x, 0) - x target + log(1 + exp(-|x|))."""
    if weight is not None or pos_weight is not None:
        raise Unsupported("weights in a binary cross entropy")
    g = ctx.g
    exponent = emit.unary("neg")(g, emit.unary("abs")(g, x))
    tail = emit.unary("log1p")(g, emit.unary("exp")(g, exponent))
    linear = emit.arithmetic(
        g, "sub", emit.unary("relu")(g, x), emit.arithmetic(g, "mul", x, target)
    )
    return _reduce_elements(g, emit.arithmetic(g, "add", linear, tail), reduction)


def _reduce_elements(g: Builder, x: Tensor, reduction: int) -> Tensor:
    if reduction == NONE:
        return x
    op = "reduce_mean" if reduction == MEAN else "reduce_sum"
    return emit.reduce(g, op, x, (), keepdims=False)


def _reduced(g: Builder, mean: Tensor, reduction: int, rows: int) -> Tensor:
    """Turn a mean over the rows into what was asked for."""
    if reduction == NONE:
        raise Unsupported("a classification loss per row; use reduction='mean' or 'sum'")
    return emit.weighted(g, mean, float(rows)) if reduction == SUM else mean


def _reject_options(weight: Tensor | None, ignore_index: int) -> None:
    if weight is not None:
        raise Unsupported("class weights in a classification loss")
    if ignore_index != IGNORE_INDEX:
        raise Unsupported(f"ignore_index={ignore_index} in a classification loss")
