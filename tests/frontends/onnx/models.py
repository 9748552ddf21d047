"""Small ONNX models built with onnx.helper, and comparisons with ONNX's reference evaluator."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.onnx.model import from_onnx

OPSET = 17
CODES = {"float": TensorProto.FLOAT, "int64": TensorProto.INT64}

Shapes = Mapping[str, Sequence[int | str | None]]


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return normally distributed numbers."""
    numbers = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return (numbers * scale).astype(np.float32)


def make(
    nodes: Sequence[NodeProto],
    inputs: Shapes,
    outputs: Shapes,
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = OPSET,
) -> ModelProto:
    """Build a model of these nodes; inputs and outputs are floats."""
    infos = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in part.items()]
        for part in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(data, name) for name, data in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", *infos, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def one(op: str, inputs: Shapes, output: Sequence[int], opset: int = OPSET, **attrs: Any) -> Any:
    """Build a model of a single operator."""
    node = helper.make_node(op, list(inputs), ["y"], **attrs)
    return make([node], inputs, {"y": output}, opset=opset)


def mlp() -> ModelProto:
    """Two linear layers as PyTorch exports them, and one as Keras does."""
    weights = {
        "fc1.weight": random(16, 8),
        "fc1.bias": random(16),
        "dense/kernel": random(16, 12),
        "dense/bias": random(12),
        "fc2.weight": random(5, 12),
        "fc2.bias": random(5),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "dense/kernel"], ["c"]),
        helper.make_node("Add", ["c", "dense/bias"], ["d"]),
        helper.make_node("Tanh", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "fc2.weight", "fc2.bias"], ["logits"], transB=1),
    ]
    return make(nodes, {"x": (4, 8)}, {"logits": (4, 5)}, weights)


def cnn() -> ModelProto:
    """Convolution, batch norm, a residual block with depthwise convolution, pooling, a classifier.

    The last reshape takes its shape from the input, as exporters write it.
    """
    weights = {
        "stem.weight": random(8, 3, 3, 3, scale=0.3),
        "stem.bias": random(8),
        "bn.weight": random(8) + 2,
        "bn.bias": random(8),
        "bn.running_mean": random(8, scale=0.1),
        "bn.running_var": random(8) ** 2 + 1,
        "depthwise.weight": random(8, 1, 3, 3, scale=0.3),
        "fc.weight": random(5, 32, scale=0.3),
        "fc.bias": random(5),
        "zero": np.asarray([0], np.int64),
        "rest": np.asarray([-1], np.int64),
    }
    norm = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = [
        helper.make_node(
            "Conv", ["x", "stem.weight", "stem.bias"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        helper.make_node("BatchNormalization", ["a", *norm], ["b"], name="bn"),
        helper.make_node("Clip", ["b", "", "six"], ["c"]),
        helper.make_node("Constant", [], ["six"], value_float=6.0),
        helper.make_node("Conv", ["c", "depthwise.weight"], ["d"], group=8, auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target_shape"], axis=0),
        helper.make_node("Reshape", ["f", "target_shape"], ["g"]),
        helper.make_node("Dropout", ["g"], ["h"], name="drop"),
        helper.make_node("Gemm", ["h", "fc.weight", "fc.bias"], ["logits"], transB=1),
    ]
    nodes.insert(0, nodes.pop(3))  # constants come before their users
    return make(nodes, {"x": ("batch", 3, 8, 8)}, {"logits": ("batch", 5)}, weights)


def outputs_of(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Verify and evaluate a graph."""
    verify(graph)
    return run(graph, dict(inputs))


def check(model: ModelProto, inputs: Mapping[str, np.ndarray], rtol: float = 1e-4) -> Graph:
    """Import a model and compare all its outputs with ONNX's reference evaluator."""
    shapes = {name: array.shape for name, array in inputs.items()}
    graph = from_onnx(model, shapes=shapes)
    found = outputs_of(graph, inputs)
    expected = ReferenceEvaluator(model).run(None, dict(inputs))
    for value, reference in zip(model.graph.output, expected, strict=True):
        assert found[value.name].dtype == reference.dtype
        np.testing.assert_allclose(found[value.name], reference, rtol=rtol, atol=1e-5)
    return graph


def check_slopes(model: ModelProto) -> None:
    """Compare the output of a model of one input with ONNX's reference evaluator.

    Also compare its gradients with the slope of the loss along one random direction.
    """
    sizes = [
        [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (model.graph.input[0], model.graph.output[0])
    ]
    x = random(*sizes[0], seed=3)
    check(model, {"x": x})
    graph = from_onnx(model, loss="mse")
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    before = {name: value.data.copy() for name, value in graph.params.items() if value.trainable}
    inputs = {"x": x, "target": random(*sizes[1], seed=5), "lr": np.float32(1)}
    params = {name: array.copy() for name, array in before.items()}

    run(step, inputs, params)

    move = {name: random(*array.shape, seed=9, scale=3e-3) for name, array in before.items()}
    ends = [
        float(run(graph, inputs, {key: x + sign * move[key] for key, x in before.items()})["loss"])
        for sign in (1, -1)
    ]
    slope = sum(float(((before[key] - params[key]) * move[key]).sum()) for key in before)
    assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=5e-2, abs=1e-5)
