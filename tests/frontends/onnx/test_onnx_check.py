"""`compile(..., check=True)` of ONNX models; the reference is another runtime's forward pass."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import pockengine
from pockengine.errors import CheckError, CompileError
from pockengine.frontends.onnx.ops.registry import RULES
from pockengine.frontends.registry import find_source


def small() -> tuple[ModelProto, tuple[np.ndarray]]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((3, 5)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Tanh", ["y"], ["logits"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, (4, 5))
    weights = numpy_helper.from_array(weight, "weight")
    graph = helper.make_graph(nodes, "small", [x], [logits], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return model, (rng.standard_normal((4, 3)).astype(np.float32),)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_a_correct_step_passes(loss: str) -> None:
    model, inputs = small()
    pockengine.compile(model, inputs, loss=loss, check=True)


def test_an_array_alone_is_the_example_of_the_first_input() -> None:
    model, (x,) = small()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"

    source = find_source(model, x)

    for graph in (source.graph("mse"), find_source(model, (x,)).graph("mse")):
        assert graph.inputs[0].type.shape == (4, 3)


def test_a_single_scalar_output_is_the_loss() -> None:
    model, inputs = small()
    model.graph.node.append(helper.make_node("ReduceMean", ["logits"], ["mean"], keepdims=0))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("mean", TensorProto.FLOAT, ()))

    compiled = pockengine.compile(model, inputs, check=True)

    assert list(compiled.graph.outputs) == ["loss"]


def test_a_wrong_import_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, ("", "Tanh"), RULES["", "Sigmoid"])
    model, inputs = small()
    with pytest.raises(CheckError, match=r"small: the loss is wrong .* of ONNX by"):
        pockengine.compile(model, inputs, loss="mse", check=True)


@pytest.mark.parametrize("flag", [True, False])
def test_constants_and_trained_params_can_be_chosen(flag: bool) -> None:
    model, (x,) = small()
    model.graph.node[1].CopyFrom(helper.make_node("If", ["flag"], ["logits"]))
    for name, op in (("then_branch", "Tanh"), ("else_branch", "Neg")):
        own = numpy_helper.from_array(np.full(5, 2, np.float32), f"{op}.scale")
        nodes = [
            helper.make_node("Constant", [], [own.name], value=own),
            helper.make_node("Mul", ["y", own.name], [f"{op}.y"]),
            helper.make_node(op, [f"{op}.y"], [f"{op}.z"]),
        ]
        out = helper.make_tensor_value_info(f"{op}.z", TensorProto.FLOAT, (4, 5))
        branch = helper.make_attribute(name, helper.make_graph(nodes, op, [], [out]))
        model.graph.node[1].attribute.append(branch)
    model.graph.input.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, ()))
    choices = {"constants": {"flag": flag}, "trainable": {"weight": False}}

    compiled = pockengine.compile(model, (x,), loss="mse", check=True, **choices)

    trained = [name for name, param in compiled.graph.params.items() if param.trainable]
    assert trained == ["Tanh.scale" if flag else "Neg.scale"]
    with pytest.raises(CompileError, match="trainable= for those of ONNX and TFLite"):
        pockengine.compile(compiled.graph, (x,), trainable={"weight": False})
