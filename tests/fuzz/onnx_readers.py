"""Fuzz the reader of ONNX files: a damaged file gives a graph or a PockEngineError.

python -m pockengine.tests.fuzz.onnx_readers --executions 20000
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.fuzz.damage import Reader, command

SHAPES = {"x": (2, 3, 8, 8)}


def readers(place: Path) -> Mapping[str, Reader]:
    """Write a model with its weights inside, and one with weights in a separate file."""
    inside, outside = place / "inside.onnx", place / "outside.onnx"
    onnx.save_model(_model(), inside)
    onnx.save_model(
        _model(), outside, save_as_external_data=True, location="weights", size_threshold=0
    )
    return {
        path.stem: Reader(path, partial(from_onnx, path, loss="mse", shapes=SHAPES))
        for path in (inside, outside)
    }


def _model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "fc.weight": (5, 64)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.weight"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [*weights, numpy_helper.from_array(np.array([-1, 64]), "shape")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    command(readers, __doc__)
