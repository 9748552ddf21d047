"""ONNX operators of classifiers' losses."""

from pockengine.frontends import emit
from pockengine.frontends.emit import loss as emit_loss
from pockengine.frontends.emit.loss import Classification, Reduction
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

NO_LABEL = -(2**31)
"""Default of ignore_index: no label is ignored."""


def _options(weight: Tensor | None, ignore_index: int | None, reduction: str) -> Classification:
    if reduction not in [kind.value for kind in Reduction]:
        raise Unsupported(f"reduction {reduction!r}")
    ignored = NO_LABEL if ignore_index is None else ignore_index
    return Classification(weight, ignored, reduction=Reduction(reduction))


@onnx_op("NegativeLogLikelihoodLoss")
def nll_loss(
    ctx: OnnxContext,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Tensor:
    """Negative log likelihood of logarithms of probabilities."""
    how = _options(weight, ignore_index, reduction)
    return emit_loss.negative_log_likelihood(ctx.g, x, target, how)


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    ctx: OnnxContext,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> list[Tensor]:
    """Cross entropy of logits and labels, and on request the logarithms of the softmax."""
    how = _options(weight, ignore_index, reduction)
    if not ctx.wants(1):
        return [emit_loss.cross_entropy(ctx.g, x, target, how)]
    logarithms = emit.along_last(ctx.g, "log_softmax", x, 1)
    loss = emit_loss.negative_log_likelihood(ctx.g, logarithms, target, how)
    return [loss, logarithms]
