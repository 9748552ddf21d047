"""Int8 nets train in ONNX Runtime as in the oracle: QDQ pairs, and the same integers afterwards."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.onnx.forms import FORMS
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.tests.backends.onnx.computed import TARGET, computed
from pockengine.tests.backends.trainings import SMOOTH
from pockengine.tests.compiler.small_nets import batches, residual_net

SAMPLES = batches(4)
PART = Scheme("part", (("c.0.weight", ParamChoice("share", share=0.25)), ("fc.*", FULL)))


def _compiled(training: Training, backend: str, place: Path) -> tuple[Program, Artifact]:
    graph, _ = quantized(residual_net(), SAMPLES)
    chosen = backend_for(load_device("host").on(backend))
    program = compile_program(graph, training, target=chosen.target(), check=True)
    return program, write_artifact(program, chosen, place)


@pytest.mark.parametrize(
    "training",
    [
        Training("full", Sgd(momentum=0.9), integers=Integers("f32")),
        Training("full", Adam(**SMOOTH), integers=Integers("f32")),
        Training("full", Sgd(momentum=0.9), integers=Integers("f32", qas=False)),
    ],
    ids=["momentum", "adam", "unscaled"],
)
def test_integers_train_like_the_oracle(training: Training, tmp_path: Path) -> None:
    _check_steps(*_compiled(training, "onnx", tmp_path / "artifact"))


def test_pairs_of_frozen_weights_are_exact_until_the_runtime_fuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = onnxruntime.SessionOptions

    def unoptimized() -> onnxruntime.SessionOptions:
        options = plain()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options

    monkeypatch.setattr(onnxruntime, "SessionOptions", unoptimized)
    training = Training(PART, Sgd(momentum=0.9), integers=Integers("f32"))

    _check_steps(*_compiled(training, "onnx", tmp_path / "artifact"), rtol=1e-6)


def _check_steps(program: Program, artifact: Artifact, rtol: float = 1e-4) -> None:
    """Compare the losses and the weights of a few steps with the oracle's."""
    step = program.entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    with open_session(artifact) as session:
        for number, batch in enumerate(SAMPLES):
            found = session.train_step({k: batch[k] for k in ("x", "target")}, lr=0.1)["loss"]
            feed = {**batch, "step": np.int32(number + 1)}
            np.testing.assert_allclose(found, run(step, feed, params)["loss"], rtol=rtol)
        trained = session.params()
    assert trained["c.0.weight"].dtype == DType.I8.numpy
    for name, expected in params.items():
        apart = np.abs(trained[name].astype(np.float64) - expected)
        assert apart.max() <= (1 if expected.dtype == np.int8 else 1e-4), name


@pytest.mark.parametrize("scheme", ["full", PART], ids=["full", "sparse"])
def test_losses_are_nearly_those_of_integer_arithmetic(
    scheme: Scheme | str, tmp_path: Path
) -> None:
    """C rescales integer sums by fixed-point numbers; here f32 rounds, as does the runtime.

    For frozen weights the runtime turns the pairs into integer products.
    """
    training = Training(scheme, Sgd(momentum=0.9), integers=Integers("f32"))
    losses = []
    for backend in ("c", "onnx"):
        _, artifact = _compiled(training, backend, tmp_path / backend)
        with open_session(artifact) as session:
            inputs = [{k: batch[k] for k in ("x", "target")} for batch in SAMPLES]
            losses.append([float(session.train_step(feed, lr=0.1)["loss"]) for feed in inputs])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-2)


def test_products_lie_between_pairs(tmp_path: Path) -> None:
    """Only the pair lies between integers and their convolution."""
    training = Training("head-only", integers=Integers("f32"))
    _, artifact = _compiled(training, "onnx", tmp_path / "artifact")
    model = onnx.load(artifact.folder / "code" / "predict.onnx", load_external_data=False)
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    ops = Counter(node.op_type for node in model.graph.node)
    assert ops["QuantizeLinear"] >= 4
    weights = [node.input[1] for node in model.graph.node if node.op_type == "Conv"]
    assert len(weights) == 3
    for name in weights:  # a small weight is folded
        assert name in constants or made[name].op_type == "DequantizeLinear"
    assert ops["Transpose"] <= 1  # of the pictures


ZERO = {"zero": 3, "low": -120, "high": 100}


@pytest.mark.parametrize("scale", [np.float32(0.1), np.array([0.1, 0.02], np.float32)])
@pytest.mark.parametrize("limits", [{}, ZERO], ids=["whole", "limits"])
def test_numbers_are_quantized_like_the_oracle(
    scale: np.ndarray, limits: dict[str, int], tmp_path: Path
) -> None:
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, (5, 2)))
    found = g.quantize(x, g.constant(np.asarray(scale)), **limits)
    g.output("q", found)
    g.output("real", g.dequantize(found, g.constant(np.asarray(scale)), zero=3))
    g.output("wide", g.quantize(x, g.scalar(0.5), dtype="i32", low=-1000, high=1000))
    rows = [[0.05, -0.15], [30.0, -30.0], [np.inf, -np.inf], [0.25, 0.35], [1e9, -1e9]]
    inputs = {"x": np.array(rows, np.float32)}
    expected = run(g.graph, inputs, {})
    for name, array in computed(g.graph, inputs, tmp_path).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_a_scale_that_is_found_while_running_and_i32_are_arithmetic(tmp_path: Path) -> None:
    g = Builder(Graph("net"))
    x, scale = g.input("x", TensorType(F32, (4,))), g.input("scale", TensorType(F32, ()))
    g.output("q", g.quantize(x, scale))
    sums = g.input("sums", TensorType(I32, (4,)))
    g.output("real", g.dequantize(sums, g.scalar(0.25)))
    g.output("inside", g.unclamped(g.quantize(x, scale)))
    inputs = {
        "x": np.array([np.nan, 1.0, -700.0, 0.5], np.float32),
        "scale": np.asarray(0.5, np.float32),
        "sums": np.array([3, -7, 2**20, 0], np.int32),
    }
    expected = run(g.graph, inputs, {})
    for name, array in computed(g.graph, inputs, tmp_path).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_forms_need_no_rescaling() -> None:
    assert {"quantize", "dequantize", "unclamped"} <= FORMS.keys()
    assert not TARGET.takes("rescale")
