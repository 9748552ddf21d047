"""Equal weights that an exporter stored once, and norms that it folded."""

import warnings

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.tests.frontends.onnx.models import make, random

ONE, ZERO = np.ones(8, np.float32), np.zeros(8, np.float32)
OTHER = random(8)


def norms(
    second: tuple[str, str], *identities: tuple[str, str], one: np.ndarray = ONE
) -> ModelProto:
    """Return a model of two layer norms; the second one reads the weights `second`."""
    nodes = [
        *(helper.make_node("Identity", [base], [name]) for base, name in identities),
        helper.make_node("LayerNormalization", ["x", "a.weight", "a.bias"], ["p"], name="first"),
        helper.make_node("Tanh", ["p"], ["q"]),
        helper.make_node("LayerNormalization", ["q", *second], ["y"], name="second"),
    ]
    weights = {"a.weight": one, "a.bias": ZERO}
    return make(nodes, {"x": (4, 8)}, {"y": (4, 8)}, weights)


def mark(node: NodeProto, scopes: list[str], classes: list[str]) -> None:
    """Add the metadata that PyTorch's newer exporter writes for an operator."""
    for key, value in (("name_scopes", scopes), ("class_hierarchy", classes)):
        entry = node.metadata_props.add()
        entry.key, entry.value = f"pkg.torch.onnx.{key}", repr(value)


def quietly(model: ModelProto, **choices: bool) -> Graph:
    """Import a model without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return from_onnx(model, **choices)


def test_equal_weights_behind_identity_regain_their_names() -> None:
    model = norms(("b.weight", "b.bias"), ("a.weight", "b.weight"), ("a.bias", "b.bias"))

    graph = quietly(model)

    assert list(graph.params) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert all(param.trainable for param in graph.params.values())


def test_equal_weights_of_several_modules_are_separated() -> None:
    model = norms(("a.weight", "a.bias"))
    mark(model.graph.node[0], ["", "a", "layer_norm"], ["Net", "LayerNorm", "aten"])
    mark(model.graph.node[2], ["", "b", "layer_norm_1"], ["Net", "LayerNorm", "aten"])

    assert set(quietly(model).params) == {"a.weight", "a.bias", "b.weight", "b.bias"}


def test_weights_of_a_module_called_twice_stay_shared() -> None:
    model = norms(("a.weight", "a.bias"))
    mark(model.graph.node[0], ["", "a", "layer_norm"], ["Net", "LayerNorm", "aten"])
    mark(model.graph.node[2], ["", "a@1", "layer_norm_1"], ["Net", "LayerNorm", "aten"])

    with pytest.warns(UserWarning, match=r"operators read it: a.weight \(first, second\), a.bias"):
        assert set(from_onnx(model).params) == {"a.weight", "a.bias"}


def test_possibly_shared_weights_stay_shared_and_are_reported() -> None:
    with pytest.warns(
        UserWarning, match=r"operators read it: a.weight \(first, second\)"
    ) as caught:
        assert set(from_onnx(norms(("a.weight", "a.bias"))).params) == {"a.weight", "a.bias"}
    assert len(caught) == 1


def test_a_nonconstant_weight_stays_shared_behind_identity() -> None:
    model = norms(("b.weight", "b.bias"), ("a.weight", "b.weight"), ("a.bias", "b.bias"), one=OTHER)

    with pytest.warns(UserWarning, match=r"operators read it: a.weight \(first, second\);"):
        assert set(from_onnx(model).params) == {"a.weight", "a.bias", "b.bias"}


def mlp() -> ModelProto:
    """Return three linear layers with one shared zero bias, as Gemm and as MatMul plus Add."""
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "fc2.weight", "fc1.bias"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "last"], ["e"]),
        helper.make_node("Add", ["fc1.bias", "e"], ["y"]),
    ]
    weights = {n: random(8, 8, seed=i) for i, n in enumerate(("fc1.weight", "fc2.weight", "last"))}
    return make(nodes, {"x": (4, 8)}, {"y": (4, 8)}, {**weights, "fc1.bias": ZERO})


def test_biases_beside_different_weights_train_and_export_separately() -> None:
    graph = from_onnx(mlp(), loss="mse")
    assert set(graph.params) >= {"fc1.bias", "fc2.bias", "last.bias"}
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    x = random(4, 8)

    run(step, {"x": x, "target": random(4, 8, seed=1), "lr": np.float32(0.1)}, params)
    tuned = to_initializers(mlp(), graph, params)

    biases = [params[name] for name in ("fc1.bias", "fc2.bias", "last.bias")]
    assert not np.allclose(biases[0], biases[1])
    assert not np.allclose(biases[1], biases[2])
    (found,) = ReferenceEvaluator(tuned).run(None, {"x": x})
    expected = run(graph, {"x": x, "target": x}, params)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_biases_of_a_product_used_twice_stay_shared() -> None:
    model = mlp()
    model.graph.node[2].input[1] = "fc1.weight"

    with pytest.warns(UserWarning, match="operators read it: .*fc1.bias"):
        assert set(from_onnx(model).params) == {"fc1.weight", "fc1.bias", "last", "last.bias"}


def test_statistics_shared_with_weights_do_not_freeze_them() -> None:
    one_zero = ["one", "zero", "zero", "one"]
    nodes = [
        helper.make_node("BatchNormalization", ["x", *one_zero], ["a"]),
        helper.make_node("LayerNormalization", ["a", "one", "zero"], ["y"]),
    ]
    model = make(nodes, {"x": (4, 8)}, {"y": (4, 8)}, {"one": ONE, "zero": ZERO})

    with pytest.warns(UserWarning, match="trains as one"):
        graph = from_onnx(model)

    trained = {name: param.trainable for name, param in graph.params.items()}
    assert trained == {
        "one": True,
        "zero": True,
        "one.running_mean": False,
        "one.running_var": False,
    }


def test_folded_batch_norms_are_reported() -> None:
    nodes = [helper.make_node("Conv", ["x", "onnx::Conv_12", "onnx::Conv_13"], ["y"])]
    weights = {"onnx::Conv_12": random(4, 3, 1, 1), "onnx::Conv_13": random(4)}
    model = make(nodes, {"x": (1, 3, 2, 2)}, {"y": (1, 4, 2, 2)}, weights)

    with pytest.warns(UserWarning, match=r"batch norms were folded.*onnx::Conv_12, onnx::Conv_13"):
        from_onnx(model)


def test_batch_norms_folded_by_the_newer_exporter_are_reported() -> None:
    nodes = [helper.make_node("Conv", ["x", "stem.weight", "stem.bias"], ["y"])]
    classes = ["Net", "torch.nn.modules.batchnorm.BatchNorm2d", "aten.batch_norm.default"]
    mark(nodes[0], ["", "norm", "batch_norm"], classes)
    weights = {"stem.weight": random(4, 3, 1, 1), "stem.bias": random(4)}
    model = make(nodes, {"x": (1, 3, 2, 2)}, {"y": (1, 4, 2, 2)}, weights)

    with pytest.warns(UserWarning, match=r"batch norms were folded.*\(stem.weight\)"):
        from_onnx(model)
