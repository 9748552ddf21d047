"""Write tuned weights into a model: initializers, `Constant` operators, and attributes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.integer_weights import as_integers
from pockengine.frontends.onnx.control import bodies, nested
from pockengine.frontends.onnx.emulated_types import FLOATS
from pockengine.frontends.onnx.file import array_of
from pockengine.frontends.onnx.ops.classic import WEIGHTS
from pockengine.frontends.onnx.ops.registry import ML_DOMAIN


def place_of(node: NodeProto) -> str:
    """Return the label of an operator in errors, and in the names of its own weights."""
    return node.name or next((name for name in node.output if name), node.op_type)


def write_weights(
    model: GraphProto, folder: Path | None, graph: Graph, values: Mapping[str, np.ndarray]
) -> None:
    """Put the values of our params into a model's graph, in its own layout."""
    for tensor in _initializers(model):
        array = _tuned(tensor.name, graph, values)
        if array is None and tensor.data_location == TensorProto.EXTERNAL:
            array = array_of(tensor, folder)
        if array is not None:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            array = as_integers(array, dtype, graph.params.get(tensor.name))
            if dtype in FLOATS:
                array = array.astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for name, attribute in _attributes(model):
        array = _tuned(name, graph, values)
        if array is not None:
            attribute.floats[:] = array.ravel().tolist()


def _initializers(model: GraphProto) -> Iterator[TensorProto]:
    """Return all tensors that may be weights, those of `Constant` operators by their names."""
    yield from model.initializer
    for node in nested(model.node):
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            node.attribute[0].t.name = node.output[0]
            yield node.attribute[0].t
        for body in bodies(node):
            yield from body.initializer


def _attributes(model: GraphProto) -> Iterator[tuple[str, AttributeProto]]:
    """Return the attributes that are weights, by the names of their params."""
    for node in nested(model.node):
        for attribute in node.attribute if node.domain == ML_DOMAIN else ():
            if attribute.name in WEIGHTS:
                yield f"{place_of(node)}.{attribute.name}", attribute


def _tuned(name: str, graph: Graph, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return a param's new values in the framework's order; None if there are none."""
    param = graph.params.get(name)
    if param is None or name not in values:
        return None
    array = np.asarray(values[name])
    if array.shape != param.value.shape:
        raise ImportModelError(
            f"{name}: shape {array.shape} is not the graph's {param.value.shape}"
        )
    if param.permutation is not None:
        array = array.transpose(np.argsort(param.permutation))
    return np.array(array, order="C")
