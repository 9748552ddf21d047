"""ONNX's LSTM, GRU and RNN: every direction and option, gradients compared with PyTorch's."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.frontends.onnx.reference import reference
from pockengine.tests.frontends.onnx.models import check, make, outputs_of, random

TIME, BATCH, INPUTS, HIDDEN = 5, 3, 4, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(op: str, *, inputs: Sequence[str] = (), time: int = TIME, **attrs: Any) -> ModelProto:
    """Make a model of one layer with a bias; `inputs` follow the bias, "" omits one."""
    passes = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    weights = {
        "w": random(passes, rows, INPUTS, scale=0.5),
        "r": random(passes, rows, HIDDEN, scale=0.5, seed=1),
        "b": random(passes, 2 * rows, scale=0.5),
    }
    states = {"h": (passes, BATCH, HIDDEN), "c": (passes, BATCH, HIDDEN)}
    x, outputs = (time, BATCH, INPUTS), {"y": (time, passes, BATCH, HIDDEN)}
    last: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("y_h", "y_c")[: 1 + (op == "LSTM")], states["h"]
    )
    if attrs.get("layout"):
        swap = {"y": (BATCH, time, passes, HIDDEN), **dict.fromkeys(last, (BATCH, passes, HIDDEN))}
        x, outputs, last = (BATCH, time, INPUTS), {"y": swap.pop("y")}, swap
        states = dict.fromkeys(states, (BATCH, passes, HIDDEN))
    if "p" in inputs:
        weights["p"] = random(passes, 3 * HIDDEN)
    names = ["x", "w", "r", "b", *inputs]
    node = helper.make_node(op, names, [*outputs, *last], hidden_size=HIDDEN, **attrs)
    arguments = {"x": x, **{name: states[name] for name in inputs if name in states}}
    model = make([node], arguments, {**outputs, **last}, weights)
    if "lengths" in inputs:
        model.graph.input.append(
            helper.make_tensor_value_info("lengths", TensorProto.INT32, (BATCH,))
        )
    return model


def inputs_of(model: ModelProto) -> dict[str, np.ndarray]:
    """Draw floats for every input."""
    sizes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    return {name: random(*shape, seed=len(name)) for name, shape in sizes.items()}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_all_directions_with_initial_states(op: str, direction: str) -> None:
    states = ("", "h", "c") if op == "LSTM" else ("", "h")
    model = layer(op, inputs=states, direction=direction)

    graph = check(model, inputs_of(model))

    assert all(graph.params[name].trainable for name in ("w", "r", "b"))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("RNN", {"layout": 1}),
        ("GRU", {"layout": 1, "linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
        ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
    ],
)
def test_options(op: str, attrs: dict[str, Any]) -> None:
    model = layer(op, **attrs)
    check(model, inputs_of(model))


def test_peepholes() -> None:
    model = layer("LSTM", inputs=("", "h", "c", "p"))
    check(model, inputs_of(model))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("op", GATES)
def test_shorter_sequences_equal_separate_runs(op: str, backwards: bool) -> None:
    """ONNX's evaluator ignores lengths: the reference is each sequence alone at its length."""
    direction = "reverse" if backwards else "forward"
    model = layer(op, inputs=("lengths",), direction=direction)
    x, lengths = random(TIME, BATCH, INPUTS), np.asarray([2, 5, 3], np.int32)

    found = outputs_of(from_onnx(model), {"x": x, "lengths": lengths})

    for row, size in enumerate(lengths):
        whole = from_onnx(layer(op, time=int(size), direction=direction))
        alone = outputs_of(whole, {"x": x[:size]})
        np.testing.assert_allclose(found["y"][:size, :, row], alone["y"][:, :, row], rtol=1e-5)
        assert not found["y"][size:, :, row].any()
        np.testing.assert_allclose(found["y_h"][:, row], alone["y_h"][:, row], rtol=1e-5)


def test_clip_limits_the_gates_inputs() -> None:
    model, free = layer("RNN", clip=0.2), layer("RNN")
    inputs = inputs_of(model)

    clipped, unbounded = (outputs_of(from_onnx(each), inputs)["y"] for each in (model, free))

    assert np.abs(clipped).max() <= np.tanh(np.float32(0.2)) < np.abs(unbounded).max()


def test_coupled_gates() -> None:
    model = layer("LSTM", input_forget=1)
    for number in (0, 1):  # the forget gate is not part of it
        model.graph.initializer[number].CopyFrom(
            _with_rows(model.graph.initializer[number], 2 * HIDDEN, 3 * HIDDEN)
        )
    inputs = inputs_of(model)
    changed = outputs_of(from_onnx(model), inputs)["y"]

    np.testing.assert_array_equal(
        changed, outputs_of(from_onnx(layer("LSTM", input_forget=1)), inputs)["y"]
    )
    assert not np.allclose(changed, outputs_of(from_onnx(layer("LSTM")), inputs)["y"])


def _with_rows(tensor: TensorProto, first: int, last: int) -> TensorProto:
    array = numpy_helper.to_array(tensor).copy()
    array[:, first:last] = 7
    return numpy_helper.from_array(array, tensor.name)


@pytest.mark.parametrize(
    ("op", "attrs", "release"),
    [
        ("LSTM", {"clip": 0.1}, onnx.__version__),
        ("LSTM", {"input_forget": 1}, onnx.__version__),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Relu"]}, onnx.__version__),
        ("GRU", {"activations": ["Sigmoid", "Relu"]}, onnx.__version__),
        ("RNN", {"inputs": ("lengths",)}, onnx.__version__),
        ("GRU", {"direction": "reverse"}, "1.22.0"),
    ],
)
def test_settings_that_the_evaluator_ignores_are_not_checked(
    op: str, attrs: dict[str, Any], release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(onnx, "__version__", release)
    model = layer(op, **attrs)
    inputs = {"x": random(TIME, BATCH, INPUTS), "lengths": np.full(BATCH, TIME - 1, np.int32)}
    feed = {value.name: inputs[value.name] for value in model.graph.input}

    assert reference(model, feed, "mse", lambda array: array) is None

    checked = reference(layer(op), {"x": feed["x"]}, "mse", lambda array: array)
    assert checked is not None


def test_unknown_activations_are_named() -> None:
    with pytest.raises(ImportModelError, match="LSTM in y: the activation 'Sine'"):
        from_onnx(layer("LSTM", activations=["Sine", "Tanh", "Tanh"]))


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_gradients_equal_pytorch(op: str) -> None:
    model = layer(
        op, direction="bidirectional", **({"linear_before_reset": 1} if op == "GRU" else {})
    )
    del model.graph.output[1:]
    x, target = random(TIME, BATCH, INPUTS), random(TIME, 2, BATCH, HIDDEN, seed=5)
    graph = from_onnx(model, loss="mse")
    program = compile_program(graph, Training(optimizer=Sgd()), check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    before = {name: array.copy() for name, array in params.items()}
    run(program.entries["train"].graph, {"x": x, "target": target, "lr": np.float32(1)}, params)

    theirs = _torch_gradients(op, before, x, target)

    for name, gradient in theirs.items():
        np.testing.assert_allclose(before[name] - params[name], gradient, rtol=1e-3, atol=1e-6)


def _torch_gradients(
    op: str, weights: dict[str, np.ndarray], x: np.ndarray, target: np.ndarray
) -> dict[str, np.ndarray]:
    """Return PyTorch's gradients of the same layer, with gates in ONNX's order."""
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}[op]  # PyTorch's gates are i f g o, and r z n
    back = [int(place) for place in np.argsort(order)]
    net = getattr(torch.nn, op)(INPUTS, HIDDEN, bidirectional=True)
    halves = np.split(weights["b"], 2, axis=1)
    parts = {"weight_ih_l0": weights["w"], "weight_hh_l0": weights["r"]}
    parts |= {"bias_ih_l0": halves[0], "bias_hh_l0": halves[1]}

    def gates(array: np.ndarray, by: list[int]) -> np.ndarray:
        return np.concatenate([np.split(array, len(by))[place] for place in by])

    with torch.no_grad():
        for name, array in parts.items():
            for side, suffix in enumerate(("", "_reverse")):
                getattr(net, name + suffix).copy_(torch.from_numpy(gates(array[side], back)))
    y = net(torch.from_numpy(x))[0].reshape(TIME, BATCH, 2, HIDDEN).transpose(1, 2)
    torch.nn.functional.mse_loss(y, torch.from_numpy(target)).backward()
    found = {
        name: np.stack(
            [gates(getattr(net, name + end).grad.numpy(), order) for end in ("", "_reverse")]
        )
        for name in parts
    }
    biases = np.concatenate([found["bias_ih_l0"], found["bias_hh_l0"]], axis=1)
    return {"w": found["weight_ih_l0"], "r": found["weight_hh_l0"], "b": biases}
