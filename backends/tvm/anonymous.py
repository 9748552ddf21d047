"""Anonymise an entry's ONNX model for TVM: numbers for names, large constants as inputs.

TVM derives names in code from the model's, so user names are removed. It would also compile a
model's constants into the code, but a session may replace frozen weights.
"""

import onnx

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.tvm.functions import Constant, Function

_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def node_name(number: int) -> str:
    """Name of a node; TVM's error messages may contain it."""
    return f"n{number}"


def function_of(model: onnx.ModelProto) -> Function:
    """Return the inputs and outputs of a model's function."""
    graph = model.graph
    return Function(
        tuple(value.name for value in graph.input),
        tuple(_constant(tensor) for tensor in _outside(graph)),
        tuple(value.name for value in graph.output),
    )


def make_anonymous(model: onnx.ModelProto) -> None:
    """Number all names of a model; its external constants become its last inputs."""
    graph = model.graph
    for tensor in _outside(graph):
        graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
        graph.initializer.remove(tensor)
    names = {"": ""}  # an omitted operand
    for value in (*graph.input, *graph.initializer):
        value.name = names.setdefault(value.name, f"v{len(names)}")
    for number, node in enumerate(graph.node):
        node.name = node_name(number)
        for group in (node.input, node.output):
            group[:] = [names.setdefault(name, f"v{len(names)}") for name in group]
    for value in graph.output:
        value.name = names[value.name]
    graph.name = "entry"


def _outside(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    external = onnx.TensorProto.EXTERNAL
    return [tensor for tensor in graph.initializer if tensor.data_location == external]


def _constant(tensor: onnx.TensorProto) -> Constant:
    places = {entry.key: entry.value for entry in tensor.external_data}
    return Constant(int(places["offset"]), _DTYPES[tensor.data_type].value, tuple(tensor.dims))
