"""The two common models in ONNX, written by hand in the style of exporters."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pockengine.compiler.ir import Graph
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_measure import report

OPSET = 20
"""The first version with GELU."""


class Writer:
    """Collects nodes and initializers; each method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def tensor(self, name: str, array: Any) -> str:
        """Add an initializer."""
        self.tensors.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result."""
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def model(self, name: str, code: int, shape: Sequence[int], result: str) -> ModelProto:
        """Build the model; its input is `x`."""
        self.nodes.append(helper.make_node("Identity", [result], ["logits"]))
        inputs = [helper.make_tensor_value_info("x", code, shape)]
        outputs = [
            helper.make_tensor_value_info(
                "logits", TensorProto.FLOAT, (common.BATCH, common.CLASSES)
            )
        ]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def resnet_model() -> ModelProto:
    """Write the residual net."""
    w, weights = Writer(), common.weights("resnet")

    def block(name: str, x: str) -> str:
        kernel = weights[f"{name}.kernel"].transpose(3, 2, 0, 1)
        count, pad = kernel.shape[0], kernel.shape[2] // 2
        weight = w.tensor(f"{name}.weight", kernel)
        y = w.node("Conv", x, weight, pads=[pad] * 4)
        vectors = {
            "scale": weights[f"{name}.scale"],
            "shift": weights[f"{name}.shift"],
            "mean": np.zeros(count, np.float32),
            "var": np.ones(count, np.float32),
        }
        names = [w.tensor(f"{name}_norm.{key}", array) for key, array in vectors.items()]
        return w.node("BatchNormalization", y, *names, epsilon=common.EPSILON, momentum=0.9)

    x = w.node("Relu", block("stem", "x"))
    y = w.node("Relu", block("a1", x))
    x = w.node("Relu", w.node("Add", x, block("a2", y)))
    x = w.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = w.node("Relu", block("b1", x))
    x = w.node("Relu", w.node("Add", block("skip", x), block("b2", y)))
    x = w.node("ReduceMean", x, w.tensor("axes", np.array([2, 3])), keepdims=0)
    head = w.tensor("head.weight", weights["head.kernel"].T)
    logits = w.node("Gemm", x, head, w.tensor("head.bias", weights["head.bias"]), transB=1)
    shape = (common.BATCH, 3, common.SIDE, common.SIDE)
    return w.model("resnet", TensorProto.FLOAT, shape, logits)


def transformer_model() -> ModelProto:
    """Write the transformer."""
    w, weights = Writer(), common.weights("transformer")
    each = common.WIDTH // common.HEADS
    split = w.tensor("split", np.array([0, 0, common.HEADS, each]))
    join = w.tensor("join", np.array([0, 0, common.WIDTH]))
    scale = w.tensor("scale", np.float32(1 / math.sqrt(each)))

    def layer(name: str, x: str) -> str:
        kernel = w.tensor(f"{name}.kernel", weights[f"{name}.kernel"])
        bias = w.tensor(f"{name}.bias", weights[f"{name}.bias"])
        return w.node("Add", w.node("MatMul", x, kernel), bias)

    def norm(name: str, x: str) -> str:
        vectors = [
            w.tensor(f"{name}.{key}", weights[f"{name}.{key}"]) for key in ("scale", "shift")
        ]
        return w.node("LayerNormalization", x, *vectors, epsilon=common.EPSILON)

    def heads(name: str, x: str, perm: Sequence[int]) -> str:
        return w.node("Transpose", w.node("Reshape", layer(name, x), split), perm=perm)

    x = w.node("Gather", w.tensor("embedding", weights["embedding"]), "x")
    x = w.node("Add", x, w.tensor("positions", weights["positions"]))
    y = norm("before_attention", x)
    query, value = (heads(name, y, (0, 2, 1, 3)) for name in ("query", "value"))
    scores = w.node("Mul", w.node("MatMul", query, heads("key", y, (0, 2, 3, 1))), scale)
    mixed = w.node("MatMul", w.node("Softmax", scores, axis=-1), value)
    mixed = w.node("Reshape", w.node("Transpose", mixed, perm=(0, 2, 1, 3)), join)
    x = w.node("Add", x, layer("out", mixed))
    y = w.node("Gelu", layer("wide", norm("before_mlp", x)), approximate="tanh")
    x = w.node("Add", x, layer("narrow", y))
    axes = w.tensor("axes", np.array([1]))
    logits = layer("head", w.node("ReduceMean", norm("before_head", x), axes, keepdims=0))
    return w.model("transformer", TensorProto.INT64, (common.BATCH, common.LENGTH), logits)


def resnet() -> Graph:
    """Import the residual net, in training mode."""
    return from_onnx(resnet_model(), loss="cross_entropy", training=True)


def transformer() -> Graph:
    """Import the transformer."""
    return from_onnx(transformer_model(), loss="cross_entropy")


if __name__ == "__main__":
    report({"resnet": resnet, "transformer": transformer})
