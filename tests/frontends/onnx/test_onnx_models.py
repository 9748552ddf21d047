"""Small ONNX models: names, layouts, results compared with ONNX's evaluator, training."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.tests.frontends.onnx.models import (
    OPSET,
    check,
    cnn,
    make,
    mlp,
    one,
    outputs_of,
    random,
)


def train(
    graph: Graph, x: np.ndarray, steps: int = 10
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train on one batch with the whole compiler and our oracle; return losses and final params."""
    program = compile_program(graph, Training(optimizer=Sgd(momentum=0.9)), check=True)
    step = program.entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    labels = np.arange(len(x)) % 5
    inputs = {"x": x, "target": labels, "lr": np.float32(0.02)}
    if any(value.name == "seed" for value in step.inputs):
        inputs["seed"] = np.asarray(3, np.int32)
    losses = [float(run(step, inputs, params)["loss"]) for _ in range(steps)]
    return losses, params


def test_mlp_equals_the_reference() -> None:
    graph = check(mlp(), {"x": random(4, 8)})

    assert list(graph.params) == [tensor.name for tensor in mlp().graph.initializer]
    assert all(param.trainable for param in graph.params.values())


def test_cnn_equals_the_reference() -> None:
    graph = check(cnn(), {"x": random(2, 3, 8, 8)})

    assert not any(node.op == "transpose" and "conv" in node.scope for node in graph.nodes)
    assert graph.params["stem.weight"].value.shape == (3, 3, 3, 8)
    assert graph.params["stem.weight"].permutation == (2, 3, 1, 0)
    frozen = {name for name, param in graph.params.items() if not param.trainable}
    assert frozen == {"bn.running_mean", "bn.running_var"}


def test_activations_stay_channels_last_between_layers() -> None:
    graph = from_onnx(cnn(), shapes={"x": (2, 3, 8, 8)})

    moved = [node for node in graph.nodes if node.op == "transpose"]
    assert len(moved) == 2  # the input picture, the features before the classifier


@pytest.mark.parametrize("model", [mlp(), cnn()], ids=["mlp", "cnn"])
def test_files_equal_models_in_memory(model: ModelProto, tmp_path: Path) -> None:
    x = random(4, 8) if model.graph.input[0].type.tensor_type.shape.dim[0].dim_value else None
    x = random(2, 3, 8, 8) if x is None else x
    onnx.save(model, tmp_path / "model.onnx")
    graphs = [
        from_onnx(source, shapes={"x": x.shape}) for source in (model, tmp_path / "model.onnx")
    ]

    first, second = (outputs_of(graph, {"x": x})["logits"] for graph in graphs)
    np.testing.assert_array_equal(first, second)


def test_external_data_are_read(tmp_path: Path) -> None:
    model = mlp()
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    x = random(4, 8)

    found = outputs_of(from_onnx(tmp_path / "model.onnx"), {"x": x})["logits"]

    expected = outputs_of(from_onnx(mlp()), {"x": x})["logits"]
    np.testing.assert_array_equal(found, expected)


def test_data_larger_than_a_protobuf_can_be(tmp_path: Path) -> None:
    model = mlp()
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    with (tmp_path / "weights.bin").open("wb") as file:  # sparse: 8 GiB that occupy a few pages
        for place, tensor in enumerate(model.graph.initializer, 2):
            file.seek(place * 2**30)
            file.write(weights[tensor.name].tobytes())
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "weights.bin"), ("offset", str(place * 2**30))):
                tensor.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    x = random(4, 8)

    graph = from_onnx(path)
    tuned = to_initializers(path, graph, {"fc1.bias": weights["fc1.bias"] + 1})

    expected = outputs_of(from_onnx(mlp()), {"x": x})["logits"]
    np.testing.assert_array_equal(outputs_of(graph, {"x": x})["logits"], expected)
    back = {tensor.name: numpy_helper.to_array(tensor) for tensor in tuned.graph.initializer}
    np.testing.assert_array_equal(back.pop("fc1.bias"), weights["fc1.bias"] + 1)
    assert all(np.array_equal(array, weights[name]) for name, array in back.items())


def test_decomposed_norms_and_softmax_are_fused() -> None:
    axes = {"axes": np.array([-1])}
    vectors = {"eps": np.float32(1e-5), "scale": random(8), "shift": random(8, seed=1)}
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"]),
        helper.make_node("Sub", ["x", "mean"], ["centered"]),
        helper.make_node("Mul", ["centered", "centered"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "axes"], ["var"]),
        helper.make_node("Add", ["var", "eps"], ["room"]),
        helper.make_node("Sqrt", ["room"], ["deviation"]),
        helper.make_node("Div", ["centered", "deviation"], ["normal"]),
        helper.make_node("Mul", ["normal", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["shifted"]),
        helper.make_node("ReduceMax", ["shifted", "axes"], ["most"]),
        helper.make_node("Sub", ["shifted", "most"], ["below"]),
        helper.make_node("Exp", ["below"], ["exp"]),
        helper.make_node("ReduceSum", ["exp", "axes"], ["total"]),
        helper.make_node("Div", ["exp", "total"], ["y"]),
    ]
    model = make(nodes, {"x": (4, 8)}, {"y": (4, 8)}, {**axes, **vectors}, 18)
    feed = {"x": random(4, 8)}

    graph = from_onnx(model)

    assert {"layer_norm", "softmax"} <= {node.op for node in graph.nodes}
    (expected,) = ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_allclose(outputs_of(graph, feed)["y"], expected, atol=1e-5)


def test_training_mode_updates_statistics_and_reduces_the_loss() -> None:
    graph = from_onnx(cnn(), training=True, loss="cross_entropy", shapes={"x": (4, 3, 8, 8)})
    before = {name: param.data.copy() for name, param in graph.params.items()}

    losses, params = train(graph, random(4, 3, 8, 8), steps=30)

    assert losses[-1] < 0.5 * losses[0]
    assert any(node.op == "dropout" for node in graph.nodes)
    assert not np.allclose(params["bn.running_mean"], before["bn.running_mean"])
    assert not np.allclose(params["stem.weight"], before["stem.weight"])


def test_tuned_weights_are_written_into_the_file() -> None:
    x = random(4, 3, 8, 8)
    graph = from_onnx(cnn(), loss="cross_entropy", shapes={"x": x.shape})
    _, params = train(graph, x)

    tuned = to_initializers(cnn(), graph, params)

    (expected,) = ReferenceEvaluator(tuned).run(None, {"x": x})
    weights = {name: params.get(name, param.data) for name, param in graph.params.items()}
    found = run(graph, {"x": x, "target": np.zeros(4, np.int64)}, weights)["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    (untuned,) = ReferenceEvaluator(cnn()).run(None, {"x": x})
    assert not np.allclose(untuned, expected, atol=1e-2)


def test_weights_of_another_shape_are_refused() -> None:
    graph = from_onnx(mlp())

    with pytest.raises(
        ImportModelError, match=r"fc1.bias: shape \(3,\) is not the graph's \(16,\)"
    ):
        to_initializers(mlp(), graph, {"fc1.bias": np.zeros(3, np.float32)})


def test_batch_norm_in_training_mode_has_onnx_statistics() -> None:
    """ONNX's momentum weighs the old statistics, and its variance is biased."""
    names = ["x", "scale", "shift", "mean", "var"]
    node = helper.make_node(
        "BatchNormalization", names, ["y", "new_mean", "new_var"], training_mode=1, momentum=0.7
    )
    shapes = {"x": (3, 4, 2), **dict.fromkeys(names[1:], (4,))}
    outputs = {"y": (3, 4, 2), "new_mean": (4,), "new_var": (4,)}
    inputs = {name: random(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    inputs["var"] = np.abs(inputs["var"])

    check(make([node], shapes, outputs), inputs)


def test_dropout_has_its_rate_and_returns_the_mask() -> None:
    node = helper.make_node("Dropout", ["x", "ratio", "on"], ["y", "mask"])
    weights = {"ratio": np.asarray(0.25, np.float32), "on": np.asarray(True)}
    model = make([node], {"x": (100, 40)}, {"y": (100, 40)}, weights)
    model.graph.output.append(helper.make_tensor_value_info("mask", 9, (100, 40)))
    x = np.abs(random(100, 40)) + 1

    found = outputs_of(from_onnx(model), {"x": x, "seed": np.asarray(1, np.int32)})

    np.testing.assert_allclose(found["y"], np.where(found["mask"], x / 0.75, 0), rtol=1e-6)
    assert abs(found["mask"].mean() - 0.75) < 0.03


def test_softmax_before_opset_13_flattens_the_last_dimensions() -> None:
    """ONNX's reference evaluator uses the newer definition for all opsets."""
    x = random(2, 3, 4)

    old, new = (
        outputs_of(from_onnx(one("Softmax", {"x": x.shape}, x.shape, opset)), {"x": x})["y"]
        for opset in (11, 13)
    )

    np.testing.assert_allclose(old.sum(axis=(1, 2)), np.ones(2), rtol=1e-5)
    np.testing.assert_allclose(new.sum(axis=2), np.ones((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(old / old[:, :1, :1], np.exp(x - x[:, :1, :1]), rtol=1e-4)


def test_infinite_maxima_are_not_subtracted_from_logits() -> None:
    x = np.array([[0, -np.inf], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=0)
    graph = from_onnx(make([node], {"x": x.shape}, {"y": (3,)}))

    with np.errstate(divide="ignore"):
        found = outputs_of(graph, {"x": x})["y"]

    np.testing.assert_array_equal(found, [0, -np.inf, np.inf])


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_axes_as_attribute_and_as_input(opset: int) -> None:
    axes = np.asarray([1], np.int64)
    inputs = (
        {"inputs": ["x", "axes"], "attrs": {}}
        if opset >= 13
        else {
            "inputs": ["x"],
            "attrs": {"axes": [1]},
        }
    )
    node = helper.make_node("ReduceSum", inputs["inputs"], ["y"], keepdims=0, **inputs["attrs"])
    weights = {"axes": axes} if opset >= 13 else {}

    check(make([node], {"x": (2, 3, 4)}, {"y": (2, 4)}, weights, opset), {"x": random(2, 3, 4)})


def test_shapes_from_values_may_be_passed_as_constants() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = make(nodes, {"x": (2, 6)}, {"y": ("a", "b")})
    model.graph.input.append(helper.make_tensor_value_info("shape", 7, (2,)))

    with pytest.raises(ImportModelError, match=r"'shape' must be known at compile time.*constants"):
        from_onnx(model)
    graph = from_onnx(model, constants={"shape": np.asarray([3, -1])})

    assert graph.outputs["y"].shape == (3, 4)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Attention", {"is_causal": 1, "scale": 0.3}),
        ("MeanVarianceNormalization", {}),
        ("MeanVarianceNormalization", {"axes": [1, 3]}),
    ],
)
def test_operators_defined_by_functions_in_the_standard(op: str, attrs: dict[str, Any]) -> None:
    """Omitted attributes that the function bodies read have their defaults."""
    names = ["q", "k", "v"] if op == "Attention" else ["x"]
    shapes = dict.fromkeys(names, (2, 3, 5, 4))
    inputs = {name: random(2, 3, 5, 4, seed=seed) for seed, name in enumerate(names)}

    check(one(op, shapes, (2, 3, 5, 4), 25, **attrs), inputs, rtol=1e-3)


def test_functions_of_the_model_are_expanded() -> None:
    body = [
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["r", "w"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", OPSET)]
    shifted = helper.make_function("mine", "Shifted", ["a", "w"], ["b"], body, opsets)
    nodes = [
        helper.make_node("Shifted", ["x", "weight"], ["h"], domain="mine"),
        helper.make_node("Shifted", ["h", "weight"], ["y"], domain="mine"),
    ]
    model = make(nodes, {"x": (2, 3)}, {"y": (2, 3)}, {"weight": random(3)})
    model.functions.append(shifted)
    model.opset_import.append(helper.make_opsetid("mine", 1))

    graph = check(model, {"x": random(2, 3)})

    assert list(graph.params) == ["weight"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("places", ["align_corners", "asymmetric", "half_pixel"])
def test_pictures_are_resized(mode: str, places: str) -> None:
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode=mode,
        coordinate_transformation_mode=places,
    )
    weights = {"sizes": np.asarray([2, 3, 7, 4], np.int64)}

    check(
        make([node], {"x": (2, 3, 5, 6)}, {"y": (2, 3, 7, 4)}, weights),
        {"x": random(2, 3, 5, 6)},
        rtol=1e-3,
    )


@pytest.mark.parametrize(
    ("attrs", "size"),
    [
        ({"strides": [2, 2]}, (9, 11)),
        ({"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 0]}, (7, 14)),
        ({"strides": [2, 2], "auto_pad": "SAME_UPPER"}, (8, 10)),
        ({"dilations": [2, 1], "pads": [0, 1, 0, 1]}, (8, 5)),
    ],
)
def test_transposed_convolutions(attrs: dict[str, Any], size: tuple[int, int]) -> None:
    node = helper.make_node("ConvTranspose", ["x", "weight", "bias"], ["y"], **attrs)
    weights = {"weight": random(6, 4, 3, 3), "bias": random(4)}
    model = make([node], {"x": (2, 6, 4, 5)}, {"y": (2, 4, *size)}, weights)

    graph = check(model, {"x": random(2, 6, 4, 5)})

    assert graph.params["weight"].permutation == (2, 3, 1, 0)


def test_a_model_with_separate_weights_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_onnx(mlp())
