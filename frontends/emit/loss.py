"""Losses of frameworks, in our ops.

Classes are dimension 1, or the only dimension.
"""

import enum
import math
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import F32, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, framework_order, plain, stored


class Reduction(enum.Enum):
    """Reduction of the rows' losses."""

    NONE = "none"
    MEAN = "mean"
    SUM = "sum"


@dataclass(frozen=True)
class Classification:
    """Options of a classification loss: class weights of (C,), and the ignored label
    `ignore_index`.

    Smoothing moves this share of the probability from the label to all classes alike.
    """

    weight: Tensor | None = None
    ignore_index: int = -100
    smoothing: float = 0.0
    reduction: Reduction = Reduction.MEAN

    @property
    def plain(self) -> bool:
        """Whether the op `cross_entropy` covers all options."""
        return self.weight is None and not self.smoothing and self.reduction is Reduction.MEAN


def cross_entropy(
    g: Builder, logits: Tensor, labels: Tensor, how: Classification | None = None
) -> Tensor:
    """Cross entropy of (N, C, ...) logits and integer labels of (N, ...)."""
    how = how or Classification()
    rows = _rows(g, logits)
    if how.plain:
        targets = _flat_labels(g, labels, rows)
        return plain(g.cross_entropy(rows, targets, ignore_index=how.ignore_index))
    return _judged(g, g.log_softmax(rows), labels, how)


def negative_log_likelihood(
    g: Builder, log_probabilities: Tensor, labels: Tensor, how: Classification | None = None
) -> Tensor:
    """Negative log likelihood of (N, C, ...) log-probabilities and integer labels of (N, ...)."""
    how = how or Classification()
    node = log_probabilities.value.node
    dim = _class_dim(log_probabilities)
    over_classes = log_probabilities.layout[-1] == dim
    if how.plain and over_classes and node is not None and node.op == "log_softmax":
        logits = Tensor(node.operands[0], log_probabilities.layout)
        return cross_entropy(g, logits, labels, how)
    return _judged(g, _rows(g, log_probabilities), labels, how)


def soft_cross_entropy(g: Builder, logits: Tensor, targets: Tensor) -> Tensor:
    """Average cross entropy of (N, C, ...) logits and class probabilities of the same shape."""
    dim = _class_dim(logits)
    log_probabilities = emit.along_last(g, "log_softmax", logits, dim)
    products = emit.elementwise(g, "mul", log_probabilities, emit.cast(g, targets, F32))
    rows = logits.value.type.size // logits.shape[dim]
    total = emit.reduce(g, "reduce_sum", products, (), keepdims=False)
    return emit.weighted(g, total, -1 / rows)


def ctc(
    g: Builder,
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    label_lengths: Tensor,
    blank: int,
) -> Tensor:
    """Connectionist temporal classification of (T, N, C) logits by labels (N, S): losses (N,)."""
    tensors = (logits, labels, lengths, label_lengths)
    return plain(g.ctc_loss(*(framework_order(g, tensor) for tensor in tensors), blank=blank))


def ctc_of_logarithms(
    g: Builder,
    x: Tensor,
    labels: Tensor,
    lengths: Tensor,
    label_lengths: Tensor,
    blank: int,
) -> Tensor:
    """As for probabilities, with log-probabilities.

    Those of a log-softmax are read before it. Others may not sum to one at a frame; as in PyTorch,
    that affects the loss but not its gradient.
    """
    node = x.value.node
    if node is not None and node.op == "log_softmax" and x.layout[-1] == 2:
        logits = Tensor(node.operands[0], x.layout)
        return ctc(g, logits, labels, lengths=lengths, label_lengths=label_lengths, blank=blank)
    losses = ctc(g, x, labels, lengths=lengths, label_lengths=label_lengths, blank=blank)
    totals = emit.reduce(g, "reduce_sum", emit.unary("exp")(g, x), (2,), keepdims=False)
    missed = emit.unary("stop_gradient")(g, emit.unary("log")(g, totals))
    frames = plain(g.constant(np.arange(x.shape[0], dtype=lengths.dtype.numpy)[:, None]))
    counted = emit.choose(g, emit.arithmetic(g, "lt", frames, lengths), missed, 0.0)
    remainder = emit.reduce(g, "reduce_sum", counted, (0,), keepdims=False)
    return emit.elementwise(g, "sub", losses, remainder)


def mean_squared_error(g: Builder, x: Tensor, target: Tensor) -> Tensor:
    """Average the squared differences over all elements."""
    difference = emit.arithmetic(g, "sub", x, target)
    return emit.reduce(g, "reduce_mean", emit.unary("square")(g, difference), (), keepdims=False)


def _class_dim(x: Tensor) -> int:
    return 1 if x.rank > 1 else 0


def _rows(g: Builder, x: Tensor) -> Value:
    """Return (N, C, ...) as a matrix of one row for each label."""
    dim = _class_dim(x)
    value = stored(g, x, (*(other for other in range(x.rank) if other != dim), dim))
    shape = (value.type.size // value.shape[-1], value.shape[-1])
    return value if value.shape == shape else g.reshape(value, shape=shape)


def _flat_labels(g: Builder, labels: Tensor, rows: Value) -> Value:
    targets = framework_order(g, labels)
    shape = rows.shape[:1]
    return targets if targets.shape == shape else g.reshape(targets, shape=shape)


def _judged(g: Builder, log_probabilities: Value, labels: Tensor, how: Classification) -> Tensor:
    """Gather each row's label, weight it, mask ignored labels, and reduce."""
    targets = _flat_labels(g, labels, log_probabilities)
    counted = g.ne(targets, g.scalar(how.ignore_index, targets.dtype))
    index = g.where(counted, targets, g.scalar(0, targets.dtype))
    column = g.reshape(index, shape=(*index.shape, 1))
    losses = g.neg(g.reshape(g.take_along(log_probabilities, column, axis=1), shape=index.shape))
    weight = None if how.weight is None else framework_order(g, how.weight)
    shares = g.where(counted, g.scalar(1.0), g.scalar(0.0))
    if weight is not None:
        shares = g.mul(shares, g.take(weight, index, axis=0))
    losses = g.mul(losses, shares)
    if how.smoothing:
        weighted = log_probabilities if weight is None else g.mul(log_probabilities, weight)
        spread = g.reduce_sum(weighted, axes=(1,))
        spread = g.where(counted, g.neg(spread), g.scalar(0.0))
        classes = log_probabilities.shape[1]
        uniform = g.mul(spread, g.scalar(how.smoothing / classes))
        losses = g.add(g.mul(losses, g.scalar(1 - how.smoothing)), uniform)
    return _reduced(g, losses, shares, labels=labels, reduction=how.reduction)


def _reduced(
    g: Builder, losses: Value, shares: Value, labels: Tensor, reduction: Reduction
) -> Tensor:
    if reduction is Reduction.NONE:
        shape = labels.shape
        return plain(losses if losses.shape == shape else g.reshape(losses, shape=shape))
    total = g.reduce_sum(losses, axes=(0,))
    if reduction is Reduction.SUM:
        return plain(total)
    count = g.reduce_sum(shares, axes=(0,))
    none = g.eq(count, g.scalar(0.0))  # the mean is 0 / 0, but its gradient is zero
    mean = g.div(total, g.where(none, g.scalar(1.0), count))
    return plain(g.where(none, g.scalar(math.nan), mean))
