"""TensorFlow operators that reduce or scan along dimensions, softmax, and losses."""

import numpy as np

from pockengine.compiler.ir import F32, I32, DType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit.cumulative import Combine, associative_scan, log_add
from pockengine.frontends.emit.cumulative import cumsum as emit_cumsum
from pockengine.frontends.emit.order import best
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import Opaque, TfContext, integers, tf_op

REDUCTIONS = {
    "Max": "reduce_max",
    "Mean": "reduce_mean",
    "Min": "reduce_min",
    "Prod": "reduce_prod",
    "Sum": "reduce_sum",
}
NO_GRADIENT = Opaque("the gradient that TensorFlow's own loss operator gives; ours is derived")


def _reduce(ctx: TfContext, op: str, x: Tensor, axes: np.ndarray, keep_dims: bool) -> Tensor:
    """Reduce; unlike elsewhere, no axes means nothing to reduce."""
    dims = integers(axes)
    return emit.reduce(ctx.g, op, x, dims=dims, keepdims=keep_dims) if dims and x.rank else x


def _define(name: str, op: str) -> None:
    @tf_op(name, static=(1,))
    def rule(ctx: TfContext, x: Tensor, axes: np.ndarray, *, keep_dims: bool = False) -> Tensor:
        return _reduce(ctx, op, x, axes=axes, keep_dims=keep_dims)


for _name, _op in REDUCTIONS.items():
    _define(_name, _op)


def _define_logical(name: str, op: str) -> None:
    @tf_op(name, static=(1,))
    def rule(ctx: TfContext, x: Tensor, axes: np.ndarray, *, keep_dims: bool = False) -> Tensor:
        numbers = emit.cast(ctx.g, x, DType.F32)
        y = _reduce(ctx, op, numbers, axes=axes, keep_dims=keep_dims)
        return emit.arithmetic(ctx.g, "ne", y, 0.0)


_define_logical("All", "reduce_min")
_define_logical("Any", "reduce_max")


@tf_op("L2Loss")
def l2_loss(ctx: TfContext, x: Tensor) -> Tensor:
    """sum(x^2) / 2."""
    total = emit.reduce(ctx.g, "reduce_sum", emit.unary("square")(ctx.g, x), (), keepdims=False)
    return emit.weighted(ctx.g, total, 0.5)


def _define_place(name: str, negate: bool) -> None:
    @tf_op(name, static=(1,))
    def rule(ctx: TfContext, x: Tensor, axis: np.ndarray, *, output_type: np.dtype) -> Tensor:
        values = emit.unary("neg")(ctx.g, x) if negate else x
        places = ctx.g.argmax(framework_order(ctx.g, values), axis=integers(axis)[0] % x.rank)
        return emit.cast(ctx.g, plain(places), known_dtype(output_type, f"places of {output_type}"))


_define_place("ArgMax", negate=False)
_define_place("ArgMin", negate=True)


@tf_op("Cumsum", static=(1,))
def cumsum(
    ctx: TfContext, x: Tensor, axis: np.ndarray, *, exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """Sum up to each element along a dimension."""
    dim = integers(axis)[0]
    return emit_cumsum(ctx.g, x, dim, exclusive=exclusive, reverse=reverse)


def _define_scan(name: str, combine: Combine, nothing: float) -> None:
    @tf_op(name, static=(1,))
    def rule(
        ctx: TfContext,
        x: Tensor,
        axis: np.ndarray,
        *,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> Tensor:
        """Combine all elements up to each one, or up to the one before."""
        g, dim = ctx.g, integers(axis)[0] % x.rank
        turned = (x.axis(dim),)
        if reverse:
            x = Tensor(g.reverse(x.value, axes=turned), x.layout)
        if exclusive:
            low, high = ([0] * x.rank for _ in range(2))
            low[dim], high[dim] = 1, -1
            x = emit.pad(g, x, tuple(low), tuple(high), value=nothing)
        y = associative_scan(g, x, dim, combine)
        return Tensor(g.reverse(y.value, axes=(y.axis(dim),)), y.layout) if reverse else y


_define_scan("Cumprod", lambda g, a, b: emit.elementwise(g, "mul", a, b), 1.0)
_define_scan("CumulativeLogsumexp", log_add, float(np.finfo(np.float32).min))


def _define_softmax(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, x: Tensor) -> Tensor:
        return emit.along_last(ctx.g, op, x, -1)


_define_softmax("Softmax", "softmax")
_define_softmax("LogSoftmax", "log_softmax")


@tf_op("SparseSoftmaxCrossEntropyWithLogits")
def sparse_cross_entropy(ctx: TfContext, logits: Tensor, labels: Tensor) -> list[Tensor | Opaque]:
    """Return each row's cross entropy; `idioms` turns their mean into one op."""
    log_probabilities = emit.along_last(ctx.g, "log_softmax", logits, -1)
    index = ctx.g.reshape(framework_order(ctx.g, labels), shape=(*labels.shape, 1))
    picked = ctx.g.take_along(framework_order(ctx.g, log_probabilities), index, axis=1)
    return [plain(ctx.g.neg(ctx.g.reshape(picked, shape=labels.shape))), NO_GRADIENT]


@tf_op("SoftmaxCrossEntropyWithLogits")
def cross_entropy(ctx: TfContext, logits: Tensor, targets: Tensor) -> list[Tensor | Opaque]:
    """Return each row's cross entropy of logits and class probabilities."""
    log_probabilities = emit.along_last(ctx.g, "log_softmax", logits, -1)
    products = emit.elementwise(ctx.g, "mul", log_probabilities, targets)
    sums = emit.reduce(ctx.g, "reduce_sum", products, (-1,), keepdims=False)
    return [emit.unary("neg")(ctx.g, sums), NO_GRADIENT]


@tf_op("TopKV2", static=(1,))
def top_k(ctx: TfContext, x: Tensor, count: np.ndarray) -> list[Tensor]:
    """Take the largest of the last dimension, best first, and their indices."""
    values, places = best(ctx.g, x, -1, count=int(count), descending=True)
    return [values, emit.cast(ctx.g, places, I32)]


@tf_op("Bucketize")
def bucketize(ctx: TfContext, x: Tensor, *, boundaries: list[float]) -> Tensor:
    """Count the boundaries that each number has reached."""
    limits = plain(ctx.g.constant(np.asarray(boundaries, np.float32)))
    wide = reshape(ctx.g, emit.cast(ctx.g, x, F32), (*x.shape, 1))
    reached = emit.cast(ctx.g, emit.elementwise(ctx.g, "ge", wide, limits), F32)
    return emit.cast(
        ctx.g, emit.reduce(ctx.g, "reduce_sum", reached, dims=[-1], keepdims=False), I32
    )
