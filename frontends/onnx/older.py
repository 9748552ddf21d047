"""Upgrade operators of opsets before 11: attributes become inputs.

So rules support one form of each. A former attribute becomes a `Constant` operator.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from pockengine.frontends.onnx.control import bodies, nested
from pockengine.frontends.onnx.ops.resize import SIMPLE


@dataclass(frozen=True)
class _Form:
    """The opset that moved attributes to inputs: their names in the order of the inputs."""

    since: int
    inputs: Sequence[str]
    dtype: type = np.int64


FORMS: Mapping[str, _Form] = {
    "Clip": _Form(11, ("min", "max"), np.float32),
    "Pad": _Form(11, ("pads", "value")),
    "Slice": _Form(10, ("starts", "ends", "axes")),
    "TopK": _Form(10, ("k",)),
    "Upsample": _Form(9, ("scales",), np.float32),
}
RESIZE = 11
"""The opset that gave Resize its region of interest, and a choice of places."""


def written_anew(model: ModelProto) -> ModelProto:
    """Return the model in later forms; a copy if anything is older."""
    opset = opset_of(model)
    if not any(_is_old(node, opset) for node in nested(model.graph.node)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    graphs = [copy.graph, *(body for n in nested(copy.graph.node) for body in bodies(n))]
    for graph in graphs:
        nodes = [new for node in graph.node for new in _later(node, opset)]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def form_of(node: NodeProto, opset: int) -> int:
    """Return the opset whose form an operator has currently."""
    form = FORMS.get(node.op_type)
    return max(opset, form.since if form else RESIZE if node.op_type == "Resize" else 1)


def opset_of(model: ModelProto) -> int:
    """Return the version of the standard's own operators."""
    versions = [e.version for e in model.opset_import if e.domain in ("", "ai.onnx")]
    return versions[0] if versions else 1


def _is_old(node: NodeProto, opset: int) -> bool:
    return node.domain in ("", "ai.onnx") and form_of(node, opset) > opset


def _later(node: NodeProto, opset: int) -> Iterable[NodeProto]:
    """Return an operator in its newer form, after the constants that this form reads."""
    if not _is_old(node, opset):
        return [node]
    new = NodeProto()
    new.CopyFrom(node)
    if node.op_type == "Resize":
        new.input[:] = [node.input[0], "", *node.input[1:]]
        new.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        new.attribute.append(helper.make_attribute("nearest_mode", SIMPLE))
        return [new]
    form, constants = FORMS[node.op_type], []
    attributes = {attribute.name: attribute for attribute in node.attribute}
    del new.attribute[:]
    new.attribute.extend(a for name, a in attributes.items() if name not in form.inputs)
    for name in form.inputs:
        new.input.append("")
        if name in attributes:
            value = helper.get_attribute_value(attributes[name])
            kind = np.float32 if isinstance(value, float) else form.dtype
            data: np.ndarray = np.asarray([value] if name == "k" else value, kind)
            new.input[-1] = f"{node.output[0]}.{name}"
            tensor = numpy_helper.from_array(data)
            constants.append(helper.make_node("Constant", [], [new.input[-1]], value=tensor))
    return [*constants, new]
