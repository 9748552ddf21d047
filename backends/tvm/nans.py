"""Maxima and minima that propagate NaN, as in ONNX: TVM's return the other operand.

A diverging training must show in its loss, so a ReLU must not turn NaN into zero. Each such float
operator becomes a selection by comparisons, which are false for NaN. In fused kernels of TVM 0.27,
selection by x = x, or by a negated comparison, treated NaN as a number, so IsNaN is used.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Rewrite = Callable[["_Writer", NodeProto], None]


def keep_nans(model: onnx.ModelProto) -> None:
    """Rewrite a model's operators that would lose NaN; result names stay."""
    types = _element_types(model)
    old = list(model.graph.node)
    del model.graph.node[:]
    writer = _Writer(model.graph)
    for node in old:
        rewrite = REWRITES.get(node.op_type)
        if rewrite is None or types.get(node.input[0]) != TensorProto.FLOAT:
            model.graph.node.append(node)
        else:
            writer.name = node.name
            rewrite(writer, node)


class _Writer:
    """Appends the nodes that replace one, under its name."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph, self.name = graph, ""
        self._scalars: dict[float, str] = {}

    def node(self, op: str, inputs: list[str], out: str, **attrs: object) -> str:
        """Append a node of one output."""
        self._graph.node.append(helper.make_node(op, inputs, [out], name=self.name, **attrs))
        return out

    def scalar(self, number: float) -> str:
        """Return a constant."""
        if number not in self._scalars:
            name = self._scalars[number] = f"number.{len(self._scalars)}"
            tensor = numpy_helper.from_array(np.asarray(number, np.float32), name)
            self._graph.initializer.append(tensor)
        return self._scalars[number]

    def number(self, x: str, out: str) -> str:
        """Return whether x is not NaN; a selection by x = x failed when TVM fused kernels."""
        return self.node("Not", [self.node("IsNaN", [x], f"{out}.nan")], out)

    def bounded(self, comparison: str, x: str, bound: str, out: str) -> str:
        """Return the bound if the comparison holds, else x."""
        beyond = self.node(comparison, [x, bound], f"{out}.beyond")
        return self.node("Where", [beyond, bound, x], out)


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _relu(w: _Writer, node: NodeProto) -> None:
    w.bounded("Less", node.input[0], w.scalar(0.0), node.output[0])


def _clip(w: _Writer, node: NodeProto) -> None:
    (x, low, high), out = node.input, node.output[0]
    w.bounded("Greater", w.bounded("Less", x, low, f"{out}.low"), high, out)


def _hard_sigmoid(w: _Writer, node: NodeProto) -> None:
    slope, shift = (w.scalar(attribute.f) for attribute in node.attribute)
    out = node.output[0]
    steep = w.node("Mul", [node.input[0], slope], f"{out}.steep")
    line = w.node("Add", [steep, shift], f"{out}.line")
    low = w.bounded("Less", line, w.scalar(0.0), f"{out}.low")
    w.bounded("Greater", low, w.scalar(1.0), out)


def _extreme(w: _Writer, node: NodeProto, comparison: str) -> None:
    (x, y), out = node.input, node.output[0]
    chosen = w.bounded(comparison, x, y, f"{out}.chosen")
    w.node("Where", [w.number(y, f"{out}.number"), chosen, y], out)


def _reduced(w: _Writer, node: NodeProto) -> None:
    """Add a sum that is 0, or NaN if an element is."""
    (x, axes), out = node.input, node.output[0]
    attrs = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    number = w.number(x, f"{out}.number")
    nans = w.node("Where", [number, w.scalar(0.0), x], f"{out}.nans")
    total = w.node("ReduceSum", [nans, axes], f"{out}.total", **attrs)
    extreme = w.node(node.op_type, [x, axes], f"{out}.extreme", **attrs)
    w.node("Add", [extreme, total], out)


def _equal(w: _Writer, node: NodeProto) -> None:
    (x, y), out = node.input, node.output[0]
    if x == y:
        w.number(x, out)
    else:
        w.node("Equal", [x, y], out)


REWRITES: Mapping[str, Rewrite] = {
    "Relu": _relu,
    "Clip": _clip,
    "Equal": _equal,
    "HardSigmoid": _hard_sigmoid,
    "Max": partial(_extreme, comparison="Less"),
    "Min": partial(_extreme, comparison="Greater"),
    "ReduceMax": _reduced,
    "ReduceMin": _reduced,
}
"""Rewrites by ONNX operator."""
