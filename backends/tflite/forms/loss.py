"""Cross entropy of labels and its gradient: a look-up in each row instead of a one-hot product.

Rows with the label `ignore_index` do not count; any other label outside makes the loss NaN.
"""

import math
from collections.abc import Mapping

import numpy as np

from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.movement import gathered
from pockengine.backends.tflite.kinds import FLOAT, INT, TRUTH
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node


class _Labels:
    """Vectors from labels: whether the row counts, the offset of its class, NaN for an invalid
    label.
    """

    def __init__(self, w: EntryWriter, node: Node) -> None:
        logits, labels = node.operands[:2]
        rows, classes = logits.shape
        label = w.read(labels)
        zero, last, ignored = (
            w.scalar(number, labels.dtype)
            for number in (0, classes - 1, node.attrs["ignore_index"])
        )
        self.counted = w.broadcast("NOT_EQUAL", label, ignored, kind=TRUTH)
        inside = w.broadcast("MINIMUM", last, w.broadcast("MAXIMUM", zero, label))
        known = w.broadcast("EQUAL", label, inside, kind=TRUTH)
        sound = w.broadcast("LOGICAL_OR", known, w.broadcast("LOGICAL_NOT", self.counted))
        self.wrong = w.broadcast("SELECT_V2", sound, w.scalar(0.0), w.scalar(math.nan))
        firsts = w.constant(classes * np.arange(rows, dtype=np.int32))
        self.places = w.broadcast("ADD", firsts, w.cast(inside, INT))
        self.count = total(w, w.cast(self.counted, FLOAT))


def total(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """Sum of a vector."""
    return w.op("SUM", x, w.numbers([0]), shape=(), KeepDims=False)


def _cross_entropy(w: EntryWriter, node: Node) -> None:
    """-log softmax at the label, averaged over the rows that count."""
    logits, labels = node.operands[0], _Labels(w, node)
    x = w.read(logits)
    chances = w.reshape(w.op("LOG_SOFTMAX", x, shape=x.shape), (logits.type.size,))
    missed = w.broadcast("SUB", labels.wrong, gathered(w, chances, labels.places, 0))
    losses = w.broadcast("SELECT_V2", labels.counted, missed, w.scalar(0.0))
    w.bind(node.result, w.broadcast("DIV", total(w, losses), labels.count))


def _cross_entropy_dx(w: EntryWriter, node: Node) -> None:
    """dy (softmax - onehot) / count, 0 in the rows that do not count."""
    logits, _, dy = node.operands
    labels, x, size = _Labels(w, node), w.read(logits), logits.type.size
    rows = x.shape[0]
    softmax = w.op("SOFTMAX", x, shape=x.shape, Beta=1.0)
    minus, places = w.constant(np.full(rows, -1.0, np.float32)), w.reshape(labels.places, (rows, 1))
    onehot = w.op("SCATTER_ND", places, minus, w.numbers([size]), shape=(size,), kind=FLOAT)
    wrong, counted = (w.reshape(each, (rows, 1)) for each in (labels.wrong, labels.counted))
    less = w.broadcast("ADD", w.broadcast("ADD", softmax, w.reshape(onehot, x.shape)), wrong)
    most = w.broadcast("MAXIMUM", w.scalar(1.0), labels.count)
    scaled = w.broadcast("MUL", less, w.broadcast("DIV", w.read(dy), most))
    w.bind(node.result, w.broadcast("SELECT_V2", counted, scaled, w.scalar(0.0)))


FORMS: Mapping[str, Form] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_dx": _cross_entropy_dx,
}
