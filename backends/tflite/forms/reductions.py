"""Reductions and running sums. They work in the layout that their operand lies in."""

from collections.abc import Mapping

from pockengine.backends.runtimes.layout import laid_out, without
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.movement import layout_of
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node


def _reduction(op: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        (x,), axes, keep = node.operands, node.attrs["axes"], node.attrs["keepdims"]
        layout = layout_of(w, x)
        places = w.numbers(sorted(layout.index(axis) for axis in axes))
        result = layout if keep else without(layout, axes)
        shape = laid_out(node.result.shape, result)
        tensor = w.op(op, w.read(x, layout), places, shape=shape, KeepDims=keep) if axes else None
        w.bind(node.result, w.read(x, layout) if tensor is None else tensor, result)

    return form


def _argmax(w: EntryWriter, node: Node) -> None:
    (x,), axis = node.operands, node.attrs["axis"]
    layout = layout_of(w, x)
    result = without(layout, [axis])
    tensor = w.op(
        "ARG_MAX",
        w.read(x, layout),
        w.numbers([layout.index(axis)]),
        shape=laid_out(node.result.shape, result),
        kind=KINDS[node.result.dtype],
        OutputType=KINDS[node.result.dtype],
    )
    w.bind(node.result, tensor, result)


def _cumsum(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    axis, tensor = w.numbers([layout.index(attrs["axis"])]), w.read(x, layout)
    backwards = attrs["reverse"]
    w.bind(node.result, w.op("CUMSUM", tensor, axis, shape=tensor.shape, Reverse=backwards), layout)


FORMS: Mapping[str, Form] = {
    "reduce_sum": _reduction("SUM"),
    "reduce_mean": _reduction("MEAN"),
    "reduce_max": _reduction("REDUCE_MAX"),
    "reduce_min": _reduction("REDUCE_MIN"),
    "reduce_prod": _reduction("REDUCE_PROD"),
    "argmax": _argmax,
    "cumsum": _cumsum,
}
