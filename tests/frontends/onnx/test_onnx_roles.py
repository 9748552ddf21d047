"""Which constants of a file train: by metadata, by role, by the user's choice."""

import warnings

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.frontends.onnx.roles import KIND
from pockengine.tests.frontends.onnx.models import make, random

N = helper.make_node


def decided(model: ModelProto, **choices: object) -> tuple[list[str], str]:
    """Return the names of the trained params, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = from_onnx(model, **choices)
    trained = [name for name, param in graph.params.items() if param.trainable]
    return trained, " ".join(str(warning.message) for warning in caught)


def state(model: ModelProto, kinds: dict[str, str]) -> ModelProto:
    """Add the metadata that PyTorch's newer exporter writes for constants."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, kind in kinds.items():
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, tensors[name].dims)
        value.metadata_props.add(key=KIND, value=kind)
        model.graph.value_info.append(value)
    return model


def encoder(table: np.ndarray) -> ModelProto:
    """Return a model that normalizes its input, applies a linear layer, adds a table and scales."""
    nodes = [
        N("Sub", ["x", "mean"], ["a"]),
        N("MatMul", ["a", "weight"], ["b"]),
        N("Add", ["b", "bias"], ["c"]),
        N("Add", ["c", "table"], ["d"]),
        N("Mul", ["d", "gamma"], ["y"]),
    ]
    weights = {"mean": random(4), "weight": random(4, 8), "bias": random(8), "table": table}
    return make(nodes, {"x": (2, 3, 4)}, {"y": (2, 3, 8)}, {**weights, "gamma": random(8)})


def sines(rows: int, width: int) -> np.ndarray:
    """Return the sinusoidal position table of "Attention Is All You Need"."""
    angles = np.arange(rows)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(rows, width).astype(np.float32)


def test_input_statistics_and_sinusoidal_tables_do_not_train() -> None:
    trained, messages = decided(encoder(sines(3, 8)))

    assert trained == ["weight", "bias", "gamma"]
    assert "3 weights train" in messages
    assert "mean do not (statistics" in messages
    assert "table do not (tables of sines" in messages


def test_rotary_tables_and_frequencies_do_not_train() -> None:
    frequencies = 1 / 100 ** (np.arange(0, 8, 2) / 8)
    angles = np.arange(6)[:, None] * frequencies
    tables = {"cos": np.cos(angles), "sin": np.sin(angles), "inv_freq": frequencies}
    nodes = [
        N("Mul", ["q", "inv_freq"], ["f"]),
        N("MatMul", ["x", "w"], ["q"]),
        N("Mul", ["q", "cos"], ["a"]),
        N("Mul", ["q", "sin"], ["b"]),
        N("Sum", ["a", "b", "f"], ["y"]),
    ]
    nodes[:2] = nodes[1::-1]
    weights = {"w": random(4, 4)} | {n: table.astype(np.float32) for n, table in tables.items()}

    assert decided(make(nodes, {"x": (6, 4)}, {"y": (6, 4)}, weights))[0] == ["w"]


def test_scales_and_ones_written_by_an_exporter_do_not_train() -> None:
    nodes = [
        N("MatMul", ["x", "w"], ["a"]),
        N("Mul", ["a", "scale"], ["b"]),
        N("MatMul", ["b", "ones"], ["c"]),
        N("GatherND", ["table", "places"], ["d"]),
        N("Add", ["c", "d"], ["y"]),
    ]
    weights = {"w": random(4, 4), "table": random(3, 1), "places": np.array([[0], [2]])}
    weights |= {"scale": np.float32([0.5]), "ones": np.ones((4, 1), np.float32)}
    model = make(nodes, {"x": (2, 4)}, {"y": (2, 1)}, weights)

    assert decided(state(model, {"w": "PARAMETER"}))[0] == ["w", "table"]


def test_learned_tables_train_unless_the_user_overrides() -> None:
    model = encoder(random(3, 8))

    assert decided(model)[0] == ["weight", "bias", "table", "gamma"]
    chosen = {"mean": True, "table": False, "gamma": False}
    assert decided(model, trainable=chosen)[0] == ["mean", "weight", "bias"]
    with pytest.raises(ImportModelError, match=r"'nobody' .*--frozen.*bias, gamma"):
        from_onnx(model, trainable={"nobody": True})


def test_metadata_takes_precedence_over_roles() -> None:
    kinds = {"mean": "PARAMETER", "weight": "PARAMETER", "bias": "BUFFER"}

    trained, messages = decided(state(encoder(random(3, 8)), kinds))

    assert trained == ["mean", "weight", "gamma"]  # gamma: folded, but used as a weight
    assert "bias do not (the file says BUFFER)" in messages
    assert "table do not (no parameters of the exported module" in messages


def test_parameters_merged_by_the_exporter_are_listed() -> None:
    model = state(encoder(random(3, 8)), {"weight": "PARAMETER"})
    listed = "".join(f"p_{n}: PARAMETER target='net.{n}'\n" for n in ("w", "b", "t", "g", "c"))
    key = "pkg.torch.export.ExportedProgram.graph_signature"
    model.graph.metadata_props.add(key=key, value=f"# inputs\n{listed}x: USER_INPUT\n")

    _, messages = decided(model)

    assert (
        "merged or folded parameters of the module (net.w, net.b, net.t, net.g, net.c)" in messages
    )
    assert "optimize=False" in messages


def test_a_row_repeated_for_the_batch_is_reported() -> None:
    token = np.repeat(random(1, 1, 4), 2, 0)
    nodes = [N("Concat", ["onnx::Concat_7", "x"], ["a"], axis=1), N("MatMul", ["a", "w"], ["y"])]
    weights = {"onnx::Concat_7": token, "w": random(4, 4)}

    _, messages = decided(make(nodes, {"x": (2, 3, 4)}, {"y": (2, 4, 4)}, weights))

    assert "onnx::Concat_7 repeat one row for each row of the batch" in messages


@pytest.mark.parametrize(
    ("names", "trains"), [(("val_1", "val_2"), False), (("in.weight", "in.bias"), True)]
)
def test_ones_and_zeros_written_by_an_exporter_do_not_train(
    names: tuple[str, str], trains: bool
) -> None:
    nodes = [N("InstanceNormalization", ["x", *names], ["a"]), N("Relu", ["a"], ["y"])]
    weights = dict(zip(names, (np.ones(3, np.float32), np.zeros(3, np.float32)), strict=True))

    trained, messages = decided(make(nodes, {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, weights))

    assert trained == (list(names) if trains else [])
    assert ("ones and zeros" in messages) is not trains


def test_group_norm_trains_the_modules_own_scale() -> None:
    nodes = [
        N("Reshape", ["x", "groups"], ["a"]),
        N("InstanceNormalization", ["a", "one", "zero"], ["b"]),
        N("Reshape", ["b", "whole"], ["c"]),
        N("Mul", ["c", "scale"], ["d"]),
        N("Add", ["d", "shift"], ["y"]),
    ]
    weights = {
        "groups": np.array([2, 2, -1]),
        "whole": np.array([2, 4, 5]),
        "one": np.ones(2, np.float32),
        "zero": np.zeros(2, np.float32),
        "scale": random(4, 1),
        "shift": random(4, 1),
    }
    trained, _ = decided(make(nodes, {"x": (2, 4, 5)}, {"y": (2, 4, 5)}, weights))

    assert trained == ["scale", "shift"]


@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_initial_states_train_if_learned(scale: float) -> None:
    nodes = [N("LSTM", ["x", "w", "r", "", "", "h", "h"], ["", "y"], hidden_size=3)]
    weights = {
        "w": random(1, 12, 4),
        "r": random(1, 12, 3),
        "h": random(1, 2, 3) * np.float32(scale),
    }

    trained, _ = decided(make(nodes, {"x": (3, 2, 4)}, {"y": (1, 2, 3)}, weights))

    assert trained == (["w", "r", "h"] if scale else ["w", "r"])


def constants() -> ModelProto:
    """Return a net with weights as `Constant` operators, as Paddle's exporter writes them."""
    numbers = {"fc.w_0": random(4, 8), "fc.b_0": random(8), "half": np.float32([0.5])}
    nodes = [
        *(
            N("Constant", [], [name], value=numpy_helper.from_array(x))
            for name, x in numbers.items()
        ),
        N("MatMul", ["x", "fc.w_0"], ["a"]),
        N("Reshape", ["fc.b_0", "shape"], ["b"]),
        N("Add", ["a", "b"], ["c"]),
        N("Mul", ["c", "half"], ["y"]),
    ]
    return make(nodes, {"x": (2, 4)}, {"y": (2, 8)}, {"shape": np.array([1, 8])})


def test_weights_in_constant_operators_train_and_are_written_back() -> None:
    model, x = constants(), random(2, 4)
    trained, messages = decided(model)
    assert trained == ["fc.w_0", "fc.b_0"]
    assert "fc.w_0, fc.b_0 are `Constant` operators" in messages

    with pytest.warns(UserWarning, match="2 weights train"):
        graph = from_onnx(model)
    tuned = to_initializers(model, graph, {"fc.b_0": np.zeros(8, np.float32)})

    (found,) = ReferenceEvaluator(tuned).run(None, {"x": x})
    np.testing.assert_allclose(found, x @ random(4, 8) * np.float32(0.5), rtol=1e-5)
    model.producer_name = "pytorch"  # its `Constant` operators are literals, never weights
    assert decided(model)[0] == []
    assert decided(model, trainable={"fc.w_0": True})[0] == ["fc.w_0"]


def test_statistics_and_buffers_in_constant_operators_do_not_train() -> None:
    numbers = {name: np.abs(random(3)) for name in ("scale", "shift", "mean", "variance")}
    nodes = [
        *(N("Constant", [], [n], value=numpy_helper.from_array(x)) for n, x in numbers.items()),
        N("BatchNormalization", ["x", *numbers], ["a"]),
        N("MatMul", ["a", "stft.basis_buffer"], ["y"]),
    ]
    model = make(nodes, {"x": (2, 3, 4)}, {"y": (2, 3, 5)}, {"stft.basis_buffer": random(4, 5)})

    trained, messages = decided(model)

    assert trained == ["scale", "shift"]
    assert "stft.basis_buffer do not (buffers by their names)" in messages
    with pytest.warns(UserWarning, match="2 weights train"):
        graph = from_onnx(model, training=True)
    assert {"mean", "variance"} <= graph.params.keys()
