"""Matrix products, softmax."""

from collections.abc import Mapping

from pockengine.backends.runtimes.factors import floats
from pockengine.backends.runtimes.forms import layout_of
from pockengine.backends.runtimes.layout import canonical
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node, Value


def _matmul(w: EntryWriter, node: Node) -> None:
    a, b = floats(node, "tflite")
    transposed = (node.attrs["transpose_a"], node.attrs["transpose_b"])
    if len(a.shape) == len(b.shape) == 2:
        rows, columns = (1, 0) if transposed[0] else (0, 1), (0, 1) if transposed[1] else (1, 0)
        w.bind(node.result, product(w, w.read(a, rows), w.read(b, columns)))
    else:
        w.bind(node.result, _batches(w, node, (a, b), transposed))


def product(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """Product of a (..., K) and the transpose of b (N, K), with the fastest operator."""
    shape = (*a.shape[:-1], b.shape[0])
    return w.op("FULLY_CONNECTED", a, b, shape=shape, KeepNumDims=len(shape) > 2)


def _batches(
    w: EntryWriter, node: Node, pair: tuple[Value, Value], transposed: tuple[bool, bool]
) -> LiteTensor:
    """BATCH_MATMUL, which reads either factor transposed, so no layout needs a transpose."""
    tensors, turned = [], []
    for matrices, flipped in zip(pair, transposed, strict=True):
        own = canonical(len(matrices.shape))
        other = (*own[:-2], own[-1], own[-2])
        lies = layout_of(w, matrices) == other
        tensors.append(w.read(matrices, other if lies else own))
        turned.append(flipped != lies)
    shape = node.result.shape
    return w.op("BATCH_MATMUL", *tensors, shape=shape, AdjX=turned[0], AdjY=turned[1])


def _softmax(w: EntryWriter, node: Node) -> None:
    x = w.read(node.operands[0])
    w.bind(node.result, w.op("SOFTMAX", x, shape=x.shape, Beta=1.0))


def _log_softmax(w: EntryWriter, node: Node) -> None:
    x = w.read(node.operands[0])
    w.bind(node.result, w.op("LOG_SOFTMAX", x, shape=x.shape))


FORMS: Mapping[str, Form] = {
    "matmul": _matmul,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
