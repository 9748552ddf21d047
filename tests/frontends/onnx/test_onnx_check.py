"""`compile(..., check=True)` of ONNX models: their forward pass by ONNX's reference evaluator."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pockengine
from pockengine.errors import CheckError
from pockengine.frontends.onnx.ops.registry import RULES


def small() -> tuple[object, tuple[np.ndarray]]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((3, 5)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Tanh", ["y"], ["logits"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (4, 5))
    held = numpy_helper.from_array(weight, "weight")
    graph = helper.make_graph(nodes, "small", [x], [logits], [held])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return model, (rng.standard_normal((4, 3)).astype(np.float32),)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_a_right_step_passes(loss: str) -> None:
    model, inputs = small()
    pockengine.compile(model, inputs, loss=loss, check=True)


def test_a_wrong_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, ("", "Tanh"), RULES["", "Sigmoid"])
    model, inputs = small()
    with pytest.raises(CheckError, match=r"small: the loss is wrong .* of ONNX by"):
        pockengine.compile(model, inputs, loss="mse", check=True)
