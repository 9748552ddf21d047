"""Rules of `legalize` for norms, softmax, losses and look-ups, from reductions and arithmetic."""

import math
from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule

Results = tuple[Value, ...]


def _row_sum(g: Builder, x: Value) -> Value:
    return g.reduce_sum(x, axes=(len(x.shape) - 1,), keepdims=True)


def _row_mean(g: Builder, x: Value) -> Value:
    return g.reduce_mean(x, axes=(len(x.shape) - 1,), keepdims=True)


def _shifted(g: Builder, x: Value) -> Value:
    """x minus its row's maximum, so that no exponential overflows."""
    return g.sub(x, g.reduce_max(x, axes=(len(x.shape) - 1,), keepdims=True))


def _softmax(g: Builder, node: Node) -> Results:
    power = g.exp(_shifted(g, node.operands[0]))
    return (g.div(power, _row_sum(g, power)),)


def _log_softmax(g: Builder, node: Node) -> Results:
    shifted = _shifted(g, node.operands[0])
    return (g.sub(shifted, g.log(_row_sum(g, g.exp(shifted)))),)


def _row_norm(g: Builder, node: Node) -> Results:
    """y = x rstd, after subtracting the mean for a layer norm."""
    (x,) = node.operands
    if node.op == "layer_norm":
        x = g.sub(x, _row_mean(g, x))
    rstd = g.rsqrt(g.add(_row_mean(g, g.square(x)), g.scalar(node.attrs["eps"])))
    return g.mul(x, rstd), rstd


def _row_norm_dx(g: Builder, node: Node) -> Results:
    """dx = rstd (dy - y mean(dy y)), minus rstd mean(dy) for a layer norm."""
    dy, y, rstd = node.operands
    dx = g.sub(dy, g.mul(y, _row_mean(g, g.mul(dy, y))))
    if node.op == "layer_norm_dx":
        dx = g.sub(dx, _row_mean(g, dy))
    return (g.mul(dx, rstd),)


def _moments(g: Builder, node: Node) -> Results:
    """Mean and variance of each channel."""
    (x,) = node.operands
    axes = tuple(range(len(x.shape) - 1))
    mean = g.reduce_mean(x, axes=axes)
    return mean, g.reduce_mean(g.square(g.sub(x, mean)), axes=axes)


def _batch_norm_sums(g: Builder, node: Node) -> Results:
    """(sum dy, sum dy xhat) of each channel, with xhat = (x - mean) rstd.

    `moments` also computes x - mean. rstd is per channel, so the sum is scaled, not the image.
    """
    dy, x, mean, rstd = node.operands
    axes = tuple(range(len(x.shape) - 1))
    centered = g.reduce_sum(g.mul(dy, g.sub(x, mean)), axes=axes)
    return g.reduce_sum(dy, axes=axes), g.mul(centered, rstd)


class _Labels:
    """Columns from labels: one-hot class, whether the row counts, and NaN for an invalid label."""

    def __init__(self, g: Builder, logits: Value, labels: Value, ignored: int) -> None:
        rows, classes = logits.shape
        column = g.reshape(labels, shape=(rows, 1))
        numbers = g.constant(np.arange(classes, dtype=labels.dtype.numpy), "classes")
        self.hit = g.eq(column, numbers)
        self.counted = g.ne(column, g.scalar(ignored, labels.dtype))
        low = g.ge(column, g.scalar(0, labels.dtype))
        inside = g.logical_and(low, g.lt(column, g.scalar(classes, labels.dtype)))
        nan = g.sub(g.scalar(math.inf), g.scalar(math.inf))
        sound = g.logical_or(inside, g.logical_not(self.counted))
        self.wrong = g.where(sound, g.scalar(0.0), nan)
        ones = g.where(self.counted, g.scalar(1.0), g.scalar(0.0))
        self.count = g.reduce_sum(ones, axes=(0, 1))


def _cross_entropy(g: Builder, node: Node) -> Results:
    """-log softmax at the label, averaged over the rows that count."""
    logits, labels = node.operands
    known = _Labels(g, logits, labels, node.attrs["ignore_index"])
    taken = _row_sum(g, g.where(known.hit, g.log_softmax(logits), g.scalar(0.0)))
    losses = g.where(known.counted, g.sub(known.wrong, taken), g.scalar(0.0))
    return (g.div(g.reduce_sum(losses, axes=(0, 1)), known.count),)


def _cross_entropy_dx(g: Builder, node: Node) -> Results:
    """dy (softmax - onehot) / count, 0 in the rows that do not count."""
    logits, labels, dy = node.operands
    known = _Labels(g, logits, labels, node.attrs["ignore_index"])
    onehot = g.where(known.hit, g.scalar(1.0), g.scalar(0.0))
    difference = g.sub(g.add(g.softmax(logits), known.wrong), onehot)
    scale = g.div(dy, g.maximum(known.count, g.scalar(1.0)))
    return (g.where(known.counted, g.mul(difference, scale), g.scalar(0.0)),)


def _onehot(g: Builder, index: Value, size: int) -> Value:
    """A one-hot row for each index; all 0 for an index out of range."""
    column = g.reshape(index, shape=(index.type.size, 1))
    places = g.constant(np.arange(size, dtype=index.dtype.numpy), "places")
    return g.where(g.eq(column, places), g.scalar(1.0), g.scalar(0.0))


def _in_front(g: Builder, x: Value, axis: int, count: int) -> Value:
    """Move `count` dimensions from `axis` to the front, as rows: (these, the others)."""
    moved = tuple(range(axis, axis + count))
    others = tuple(i for i in range(len(x.shape)) if i not in moved)
    front = g.transpose(x, perm=(*moved, *others)) if axis else x
    rows = math.prod(x.shape[i] for i in moved)
    return g.reshape(front, shape=(rows, x.type.size // rows))


def _back(g: Builder, rows: Value, shape: tuple[int, ...], axis: int, count: int) -> Value:
    """Undo `_in_front` for a result of this shape."""
    moved = tuple(range(axis, axis + count))
    order = (*moved, *(i for i in range(len(shape)) if i not in moved))
    whole = g.reshape(rows, shape=tuple(shape[i] for i in order))
    return g.transpose(whole, perm=tuple(int(i) for i in np.argsort(order))) if axis else whole


def _take(g: Builder, node: Node) -> Results:
    """A product with the indices as one-hot rows; x must be finite."""
    (x, index), axis = node.operands, node.attrs["axis"]
    size = x.shape[axis]
    low = g.maximum(index, g.scalar(0, index.dtype))
    inside = g.minimum(low, g.scalar(size - 1, index.dtype))
    rows = g.matmul(_onehot(g, inside, size), _in_front(g, x, axis, 1))
    return (_back(g, rows, node.result.shape, axis=axis, count=len(index.shape)),)


def _take_dx(g: Builder, node: Node) -> Results:
    """The transposed product."""
    (dy, index), axis = node.operands, node.attrs["axis"]
    onehot = _onehot(g, index, node.result.shape[axis])
    rows = g.matmul(onehot, _in_front(g, dy, axis, len(index.shape)), transpose_a=True)
    return (_back(g, rows, node.result.shape, axis=axis, count=1),)


def _take_add(g: Builder, node: Node) -> Results:
    """The scattered addition, in zeros of the whole shape, and the sum."""
    (x, dy, index), axis = node.operands, node.attrs["axis"]
    return (g.add(x, g.take_dx(dy, index, axis=axis, input_shape=x.shape)),)


RULES: Mapping[str, Rule] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _row_norm,
    "rms_norm": _row_norm,
    "layer_norm_dx": _row_norm_dx,
    "rms_norm_dx": _row_norm_dx,
    "moments": _moments,
    "batch_norm_sums": _batch_norm_sums,
    "cross_entropy": _cross_entropy,
    "cross_entropy_dx": _cross_entropy_dx,
    "take": _take,
    "take_dx": _take_dx,
    "take_add": _take_add,
}
