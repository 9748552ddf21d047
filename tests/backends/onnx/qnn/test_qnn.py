"""The backend qnn without its plugin: ONNX Runtime's kernels agree with the oracle."""

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pockengine
from pockengine import extras
from pockengine.backends.onnx.bindings import CUT, NEXT, model_name, update_name
from pockengine.backends.onnx.qnn.provider import SIMULATED, HtpProvider
from pockengine.backends.onnx.session import OnnxSession
from pockengine.backends.registry import open_session
from pockengine.compiler.ir import F32, I32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import CompileError, MissingPackage, RuntimeFailure
from pockengine.tests.backends.onnx.qnn.nets import PART, SAMPLES, compiled
from pockengine.tests.compiler.small_nets import residual_net

RATE = 0.01


@pytest.mark.parametrize("scheme", [PART, "full", "bias-only"], ids=["sparse", "full", "bias-only"])
def test_both_models_of_a_step_are_the_oracles(
    scheme: Scheme | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the runtime's fusions, which round differently."""
    plain = onnxruntime.SessionOptions

    def unoptimized() -> onnxruntime.SessionOptions:
        options = plain()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options

    monkeypatch.setattr(onnxruntime, "SessionOptions", unoptimized)
    program, artifact = compiled(tmp_path / "artifact", scheme)
    step = program.entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    with OnnxSession(artifact) as session:
        for number, batch in enumerate(SAMPLES):
            found = session.train_step({k: batch[k] for k in ("x", "target")}, lr=RATE)["loss"]
            feed = {**batch, "lr": np.asarray(RATE, np.float32), "step": np.int32(number + 1)}
            np.testing.assert_allclose(found, run(step, feed, params)["loss"], rtol=1e-5)
        trained = session.params()
    for name, expected in params.items():
        apart = np.abs(trained[name].astype(np.float64) - expected)
        assert apart.max() <= (1 if expected.dtype == np.int8 else 1e-4), name


def _model(folder: Path, name: str) -> onnx.ModelProto:
    return onnx.load(folder / "code" / model_name(name), load_external_data=False)


def test_updates_are_a_model_of_their_own(tmp_path: Path) -> None:
    _, artifact = compiled(tmp_path / "artifact")
    step = _model(artifact.folder, "train").graph
    update = _model(artifact.folder, update_name("train")).graph

    made = {value.name for value in step.output}
    assert not any(name.startswith(NEXT) for name in made)
    assert all(value.name.startswith(NEXT) for value in update.output)
    read = {value.name for value in update.input}
    cut = {name for name in made if name.startswith(CUT)}
    assert cut
    assert cut <= read
    assert not {"Conv", "ConvTranspose", "Gemm", "MatMul"} & {n.op_type for n in update.node}
    assert "x" not in read
    assert "lr" not in {value.name for value in step.input}
    assert not (artifact.folder / "code" / model_name(update_name("predict"))).exists()


def test_frozen_convolutions_have_their_biases_between_pairs(tmp_path: Path) -> None:
    _, artifact = compiled(tmp_path / "artifact")
    graph = _model(artifact.folder, "train").graph
    made = {name: node for node in graph.node for name in node.output}
    readers = {name: node for node in graph.node for name in node.input}
    units = [node for node in graph.node if node.op_type == "Conv" and len(node.input) == 3]
    assert len(units) == 1  # of three convolutions one trains, and one is folded to floats
    for node in units:
        assert {made[name].op_type for name in node.input[:2]} == {"DequantizeLinear"}
        assert readers[node.output[0]].op_type == "QuantizeLinear"


def test_what_a_dropped_pair_would_not_clamp_is_clamped_beside_it(tmp_path: Path) -> None:
    """A ReLU is just the minimum of a pair's range; integers clamp by themselves."""
    _, artifact = compiled(tmp_path / "artifact")
    graph = _model(artifact.folder, "train").graph
    made = {name: node for node in graph.node for name in node.output}
    ops = Counter(
        made[node.input[0]].op_type if node.input[0] in made else "input"
        for node in graph.node
        if node.op_type == "QuantizeLinear"
    )
    assert ops == {"Clip": 3, "Conv": 1, "Add": 1, "ReduceMean": 1}


def test_random_numbers_are_refused_by_name() -> None:
    g = Builder(Graph("drawn"))
    drawn = g.random_uniform(g.input("seed", TensorType(I32, ())), shape=(3,), stream=5)
    w = g.param("w", np.ones((), np.float32))
    g.output("loss", g.reduce_mean(g.mul(w, drawn), axes=(0,)))
    with pytest.raises(CompileError, match="target qnn on host has no random_uniform"):
        pockengine.compile(g.graph, None, backend="qnn")


def test_only_updates_need_no_model_for_the_htp(tmp_path: Path) -> None:
    """Micro-batches are applied by an entry that only updates."""
    made = pockengine.compile(
        residual_net(), None, backend="qnn", scheme="head-only", micro_batches=2
    )
    code = made.artifact.folder / "code"
    assert (code / model_name(update_name("update"))).exists()
    assert not (code / model_name("update")).exists()


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, artifact = compiled(tmp_path / "artifact")
    there = find_spec
    monkeypatch.setattr(
        extras, "find_spec", lambda name: None if name == "onnxruntime_qnn" else there(name)
    )
    with pytest.raises(MissingPackage, match=r"onnxruntime_qnn, not installed.*\[qnn\]'"):
        open_session(artifact)


def _pretend(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    plugin = SimpleNamespace(
        __version__=version, get_library_path=lambda: "ep.so", get_qnn_htp_path=lambda: "htp.so"
    )
    monkeypatch.setitem(sys.modules, "onnxruntime_qnn", plugin)
    monkeypatch.setattr(extras, "find_spec", lambda name: name)


def test_a_plugin_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "1.24.0")
    with pytest.raises(MissingPackage, match=r"onnxruntime-qnn 2\.7 or newer, not 1\.24\.0: pip"):
        HtpProvider()


class _Runtime:
    """The parts of ONNX Runtime that list devices."""

    OrtHardwareDeviceType = SimpleNamespace(NPU="npu", CPU="cpu")

    def __init__(self, *kinds: str) -> None:
        self.kinds, self.registered = kinds, 0
        self.chosen: list[tuple[Any, dict[str, str]]] = []

    def register_execution_provider_library(self, name: str, path: str) -> None:
        self.name, self.registered = name, self.registered + 1

    def get_ep_devices(self) -> list[Any]:
        kinds = self.kinds if self.registered else ()
        return [SimpleNamespace(ep_name=self.name, device=SimpleNamespace(type=k)) for k in kinds]

    def add_provider_for_devices(self, devices: list[Any], options: dict[str, str]) -> None:
        self.chosen += [(each.device.type, options) for each in devices]


def test_a_machine_without_the_htp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, "2.7.0")
    runtime = _Runtime()
    with pytest.raises(RuntimeFailure, match="offers no device here; it has the HTP of a Snapdr"):
        HtpProvider().add_to(runtime, runtime)


@pytest.mark.parametrize("kinds", [("cpu",), ("cpu", "npu")], ids=["simulator", "npu"])
def test_only_the_simulator_is_reported_what_it_is(
    kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, "2.7.0")
    runtime = _Runtime(*kinds)
    for _ in range(2):
        HtpProvider().add_to(runtime, runtime)
    (kind, options), _ = runtime.chosen
    assert runtime.registered == 1
    assert (kind, options.get("soc_model")) == (kinds[-1], {"cpu": SIMULATED}.get(kinds[-1]))


def test_a_result_may_be_named_as_an_input(tmp_path: Path) -> None:
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, (2, 3)))
    y = g.matmul(x, g.param("w", np.ones((3, 3), np.float32)))
    g.output("loss", g.reduce_mean(y, axes=(0, 1)))
    g.output("output", y)
    made = pockengine.compile(g.graph, None, backend="qnn", folder=tmp_path / "net")
    with OnnxSession(made.artifact) as session:
        found = session.train_step({"x": np.ones((2, 3), np.float32)}, lr=0.5)
        assert found["loss"] == 3.0
        np.testing.assert_allclose(session.get_param("w"), np.full((3, 3), 1 - 0.5 / 3))
