"""The written models: standard, reproducible, with constants in a separate file."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import pockengine
from pockengine.backends.onnx import model
from pockengine.backends.onnx.backend import onnx_backend
from pockengine.backends.onnx.bindings import CONSTANTS, NEXT
from pockengine.backends.onnx.writer import OPSET
from pockengine.backends.runtimes.bindings import read_bindings
from pockengine.backends.runtimes.layout import WEIGHT_FIRST
from pockengine.compiled import Compiled
from pockengine.compiler.compile import compile_program
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.replay.nets import mobile_net


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(mobile_net(2, 16), None, backend="onnx", optimizer=Sgd(momentum=0.9))


def _model(compiled: Compiled, entry: str) -> onnx.ModelProto:
    return onnx.load(compiled.artifact.folder / "code" / f"{entry}.onnx", load_external_data=False)


def test_each_entry_is_an_ordinary_model(compiled: Compiled) -> None:
    for entry in compiled.artifact.entries:
        written = _model(compiled, entry)
        assert [(known.domain, known.version) for known in written.opset_import] == [("", OPSET)]
        assert {node.domain for node in written.graph.node} == {""}


def test_what_trains_goes_in_and_out_with_its_states(compiled: Compiled) -> None:
    graph = _model(compiled, "train").graph
    read = {value.name for value in graph.input}
    written = {value.name for value in graph.output}
    states = {"features.1.conv.0.0.weight", "optimizer.velocity.features.1.conv.0.0.weight"}
    assert states | {"features.0.1.running_mean", "lr", "x", "target"} <= read
    assert {"loss", *(NEXT + name for name in states)} <= written
    assert not written & {value.name for value in graph.initializer}


def test_images_stay_channels_first_between_the_borders(compiled: Compiled) -> None:
    layouts = read_bindings(compiled.artifact.folder / "code").written
    assert layouts["features.1.conv.0.0.weight"] == WEIGHT_FIRST
    assert layouts["optimizer.velocity.features.1.conv.0.0.weight"] == WEIGHT_FIRST
    for entry in ("evaluate", "predict"):
        ops = [node.op_type for node in _model(compiled, entry).graph.node]
        assert ops.count("Conv") > 10
        by_taps = ops.count("Gather")  # channels last: of picture, weight, result
        assert ops.count("Transpose") == 1 + 3 * by_taps  # one is of the pictures


def test_frozen_weights_lie_beside_the_models() -> None:
    compiled = pockengine.compile(mobile_net(2, 16), None, backend="onnx", scheme="head-only")
    code = compiled.artifact.folder / "code"
    frozen = read_bindings(code).frozen
    data = (code / CONSTANTS).read_bytes()
    weight = compiled.graph.params["features.1.conv.0.0.weight"].data
    (form,) = frozen["features.1.conv.0.0.weight"]
    stored = np.frombuffer(data, np.float32, weight.size, form.offset)

    assert form.layout == WEIGHT_FIRST
    np.testing.assert_array_equal(stored, weight.transpose(WEIGHT_FIRST).reshape(-1))
    assert sum((code / f"{entry}.onnx").stat().st_size for entry in compiled.artifact.entries) < (
        200_000
    )


def test_the_same_program_is_written_alike(tmp_path: Path) -> None:
    backend = onnx_backend(load_device("host"))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        program = compile_program(mobile_net(2, 16), Training(), target=backend.target())
        backend.write(program, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_a_model_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serialize(proto: onnx.ModelProto) -> bytes:
        raise ValueError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB")

    backend = onnx_backend(load_device("host"))
    program = compile_program(mobile_net(2, 16), Training(), target=backend.target())
    monkeypatch.setattr(model, "_serialized", serialize)
    with pytest.raises(CompileError, match=r"train\.onnx is too large for ONNX, although its con"):
        backend.write(program, tmp_path)
