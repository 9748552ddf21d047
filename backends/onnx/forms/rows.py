"""Softmax and layer norm: ONNX operators along the last axis."""

from collections.abc import Mapping

import numpy as np

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.forms import layout_of
from pockengine.compiler.ir import Node


def _softmax(op: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        (x,) = node.operands
        layout = layout_of(w, x)
        axis = layout.index(len(layout) - 1)
        w.bind(node.result, w.node(op, w.read(x, layout), axis=axis), layout)

    return form


def _layer_norm(w: EntryWriter, node: Node) -> None:
    """Normalize with the operator; its mean is an unused output."""
    (x,), (y, rstd) = node.operands, node.results
    ones = w.constant(np.ones(x.shape[-1:], np.float32))
    epsilon = node.attrs["eps"]
    names = w.nodes("LayerNormalization", 3, w.read(x), ones, axis=-1, epsilon=epsilon)
    w.bind(y, names[0])
    w.bind(rstd, names[2])


FORMS: Mapping[str, Form] = {
    "softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "layer_norm": _layer_norm,
}
