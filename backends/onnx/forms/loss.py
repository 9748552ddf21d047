"""Cross entropy of labels and its gradient: a look-up in each row instead of a one-hot product.

Rows with the label `ignore_index` do not count; any other label outside makes the loss NaN.
"""

import math
from collections.abc import Mapping

from onnx import TensorProto

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node


class _Labels:
    """Columns (N, 1) from labels: whether the row counts, its class, NaN for an invalid label."""

    def __init__(self, w: EntryWriter, node: Node) -> None:
        logits, labels = node.operands[:2]
        rows, classes = logits.shape
        column = w.reshape(w.read(labels), (rows, 1))
        zero, last = (w.scalar(number, labels.dtype) for number in (0, classes - 1))
        ignored = w.scalar(node.attrs["ignore_index"], labels.dtype)
        self.counted = w.node("Not", w.node("Equal", column, ignored))
        self.index = w.node("Clip", column, zero, last)
        sound = w.node("Or", w.node("Equal", column, self.index), w.node("Not", self.counted))
        self.wrong = w.node("Where", sound, w.scalar(0.0), w.scalar(math.nan))
        ones = w.node("Cast", self.counted, to=TensorProto.FLOAT)
        self.count = w.node("ReduceSum", ones, keepdims=0)


def _cross_entropy(w: EntryWriter, node: Node) -> None:
    """-log softmax at the label, averaged over the rows that count."""
    labels = _Labels(w, node)
    chances = w.node("LogSoftmax", w.read(node.operands[0]), axis=1)
    taken = w.node("GatherElements", chances, labels.index, axis=1)
    losses = w.node("Where", labels.counted, w.node("Sub", labels.wrong, taken), w.scalar(0.0))
    w.bind(node.result, w.node("Div", w.node("ReduceSum", losses, keepdims=0), labels.count))


def _cross_entropy_dx(w: EntryWriter, node: Node) -> None:
    """dy (softmax - onehot) / count, 0 in the rows that do not count."""
    logits, _, dy = node.operands
    labels = _Labels(w, node)
    softmax = w.node("Softmax", w.read(logits), axis=1)
    minus = w.node("Expand", w.scalar(-1.0), w.numbers((logits.shape[0], 1)))
    less = w.node("ScatterElements", softmax, labels.index, minus, axis=1, reduction="add")
    share = w.node("Div", w.read(dy), w.node("Max", labels.count, w.scalar(1.0)))
    scaled = w.node("Mul", w.node("Add", less, labels.wrong), share)
    w.bind(node.result, w.node("Where", labels.counted, scaled, w.scalar(0.0)))


FORMS: Mapping[str, Form] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_dx": _cross_entropy_dx,
}
