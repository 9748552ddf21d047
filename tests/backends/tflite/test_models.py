"""The written file: only builtin operators, the signatures of Google's guide, 2 GB."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert.interpreter import Interpreter

import pockengine
from pockengine.backends.runtimes.bindings import read_bindings
from pockengine.backends.tflite import flat
from pockengine.backends.tflite.backend import tflite_backend
from pockengine.backends.tflite.model import write_model
from pockengine.backends.tflite.names import MODEL, NODES
from pockengine.backends.tflite.writer import OUTPUT_FIRST
from pockengine.compiled import Compiled
from pockengine.compiler.compile import compile_program
from pockengine.compiler.optim import Adam, Sgd
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.replay.nets import mobile_net


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(
        mobile_net(2, 16), None, backend="tflite", optimizer=Sgd(momentum=0.9)
    )


def _file(compiled: Compiled) -> bytes:
    return (compiled.artifact.folder / "code" / MODEL).read_bytes()


def _signatures(compiled: Compiled) -> dict[str, Any]:
    interpreter = Interpreter(model_content=_file(compiled))
    known: dict[str, Any] = interpreter.get_signature_list()
    return known


def test_every_operator_is_the_runtimes_own(compiled: Compiled) -> None:
    model = tflite.Model.GetRootAs(_file(compiled), 0)
    codes = [model.OperatorCodes(place) for place in range(model.OperatorCodesLength())]
    assert codes
    assert {code.CustomCode() for code in codes} == {None}
    assert tflite.BuiltinOperator.CUSTOM not in {code.BuiltinCode() for code in codes}


def test_signatures_are_those_of_the_guide(compiled: Compiled) -> None:
    known = _signatures(compiled)
    assert set(known) == {"train", "evaluate", "infer", "save", "restore", "configure"}
    assert set(known["train"]["inputs"]) == {"x", "target"}
    assert "loss" in known["train"]["outputs"]
    assert set(known["infer"]["inputs"]) == {"x"}
    states = {"features.1.conv.0.0.weight", "optimizer.velocity.features.1.conv.0.0.weight"}
    assert states <= set(known["save"]["outputs"])
    assert known["save"]["outputs"] == known["restore"]["inputs"]


def test_another_program_trains_with_the_file_alone() -> None:
    """It passes data, and no rate; Adam's steps are counted in the model."""
    graph = residual_net()
    compiled = pockengine.compile(graph, None, backend="tflite", optimizer=Adam(eps=1e-2))
    interpreter = Interpreter(model_content=_file(compiled))
    train, configure, save, restore = (
        interpreter.get_signature_runner(key) for key in ("train", "configure", "save", "restore")
    )
    with compiled.session() as session:
        for number, rate in enumerate((0.01, 0.01, 0.02)):
            if number == 2:
                configure(lr=np.float32(rate), step=np.int32(2), seed=np.int32(0))
            batch = draw(graph, number)
            loss = session.train_step(batch, rate)["loss"]
            assert train(**batch)["loss"] == pytest.approx(float(loss), rel=1e-5)
        for name, array in save().items():
            np.testing.assert_allclose(array, session.get_param(name), rtol=1e-5, atol=1e-6)
        saved = save()
        train(**draw(graph, 3))
        restore(**saved)
        for name, array in save().items():
            np.testing.assert_array_equal(array, saved[name], err_msg=name)


def test_images_stay_as_they_are(compiled: Compiled) -> None:
    code = compiled.artifact.folder / "code"
    written = read_bindings(code).written
    assert written["features.2.conv.2.weight"] == OUTPUT_FIRST
    assert written["optimizer.velocity.features.2.conv.2.weight"] == OUTPUT_FIRST
    nodes = json.loads((code / NODES).read_text(encoding="utf-8"))
    for entry in ("evaluate", "predict"):
        ops = [op for op, _ in nodes[entry]]
        assert ops.count("CONV_2D") > 10
        assert ops.count("TRANSPOSE") <= 1  # of the matrix at the end


def test_frozen_weights_lie_in_the_file_once_for_each_layout() -> None:
    compiled = pockengine.compile(mobile_net(2, 16), None, backend="tflite", scheme="head-only")
    weight = compiled.graph.params["features.2.conv.2.weight"].data
    (form,) = read_bindings(compiled.artifact.folder / "code").frozen["features.2.conv.2.weight"]
    stored = np.frombuffer(_file(compiled), np.float32, weight.size, form.offset)
    assert form.layout == OUTPUT_FIRST
    np.testing.assert_array_equal(stored, weight.transpose(OUTPUT_FIRST).reshape(-1))


def test_the_same_program_is_written_alike(tmp_path: Path) -> None:
    backend = tflite_backend(load_device("host"))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        program = compile_program(mobile_net(2, 16), Training(), target=backend.target())
        write_model(program, tmp_path / name)
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes(), file.name


def test_a_model_that_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "MOST_BYTES", 1 << 14)
    with pytest.raises(CompileError, match=r"is too large for TFLite, whose files have at most 2 "):
        pockengine.compile(mobile_net(2, 16), None, backend="tflite")
