"""Reductions and running sums. They work in the layout that their operand lies in."""

from collections.abc import Mapping

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.movement import layout_of
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import without
from pockengine.compiler.ir import Node


def _reduction(op: str) -> Form:
    """Reduce; ONNX 18 takes the axes as an input, and none at all as all of them."""

    def form(w: EntryWriter, node: Node) -> None:
        (x,), axes, keep = node.operands, node.attrs["axes"], node.attrs["keepdims"]
        layout = layout_of(w, x)
        places = w.numbers(sorted(layout.index(axis) for axis in axes))
        name = w.node(op, w.read(x, layout), places, keepdims=int(keep), noop_with_empty_axes=1)
        w.bind(node.result, name, layout if keep else without(layout, axes))

    return form


def _argmax(w: EntryWriter, node: Node) -> None:
    (x,), axis = node.operands, node.attrs["axis"]
    layout = layout_of(w, x)
    name = w.node("ArgMax", w.read(x, layout), axis=layout.index(axis), keepdims=0)
    w.bind(node.result, name, without(layout, [axis]))


def _cumsum(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    axis = w.numbers([layout.index(attrs["axis"])])
    name = w.node("CumSum", w.read(x, layout), axis, reverse=int(attrs["reverse"]))
    w.bind(node.result, name, layout)


FORMS: Mapping[str, Form] = {
    "reduce_sum": _reduction("ReduceSum"),
    "reduce_mean": _reduction("ReduceMean"),
    "reduce_max": _reduction("ReduceMax"),
    "reduce_min": _reduction("ReduceMin"),
    "reduce_prod": _reduction("ReduceProd"),
    "argmax": _argmax,
    "cumsum": _cumsum,
}
