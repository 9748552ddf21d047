"""TFLite inference as a peer: files from TensorFlow and checked outputs, without an emulator."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.references import tflite_inference
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.guest_install import GuestPython
from pockengine.farm.references.instructions import InstructionCount
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.tflite_inference import measure_inference
from pockengine.farm.references.tflite_names import PICTURES, TYPES, file_of
from pockengine.farm.references.worker import is_available, run_module
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job

MODEL, CLASSES, SHAPE = "mobilenet_v2-0.1-32", 10, (2, 3, 32, 32)
EXPECTED = np.array([[1.0, -2.0], [0.5, 0.25]], np.float32)


@pytest.fixture
def data() -> JobData:
    module = parse_model(MODEL).build(CLASSES)
    weights = {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}
    return random_job(weights, SHAPE, model=MODEL, classes=CLASSES)


def fake_emulation(monkeypatch: pytest.MonkeyPatch, errors: dict[str, float]) -> list[str | None]:
    """Replace conversion and emulation by fakes; return the list of requested CPUs."""
    cpus: list[str | None] = []

    def count(command: list[str], marks: int, *, cpu: str, **_: object) -> InstructionCount:
        cpus.append(cpu)
        dtype = Path(command[-3]).stem
        printed = {"version": "2.14.0", "outputs": (EXPECTED + errors[dtype]).tolist()}
        return InstructionCount((100, 101, 102)[:marks], 1000, json.dumps(printed))

    python = GuestPython(Path("root"), Path("packages"))
    monkeypatch.setattr(tflite_inference, "why_missing", lambda engine: None)
    monkeypatch.setattr(tflite_inference, "install_guest_python", lambda name: python)
    monkeypatch.setattr(tflite_inference, "run_module", lambda *_: None)
    monkeypatch.setattr(tflite_inference, "count", count)
    monkeypatch.setattr(tflite_inference, "emulator_version", lambda: "qemu 7.2")
    return cpus


def test_correct_predictions_are_counted_in_both_types(
    data: JobData, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = fake_emulation(monkeypatch, {"f32": 1e-5, "int8": 0.1})
    found = measure_inference("rpi4", data, EXPECTED)
    assert {dtype: figure.median for dtype, figure in found.items()} == {"f32": 101, "int8": 101}
    assert found["int8"].version == "tflite-runtime 2.14.0"
    assert found["int8"].max_rel_error == pytest.approx(0.05)
    assert cpus == ["cortex-a72", "cortex-a72"]


@pytest.mark.parametrize("errors", [{"f32": 0.01, "int8": 0.0}, {"f32": 0.0, "int8": 0.5}])
def test_wrong_predictions_have_no_figure(
    errors: dict[str, float], data: JobData, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_emulation(monkeypatch, errors)
    with pytest.raises(FarmError, match="predicts something else than the oracle"):
        measure_inference("rpi4", data, EXPECTED)


def test_errors_name_what_is_missing(data: JobData, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FarmError, match="aarch64 boards alone, not for snapdragon-dsp"):
        measure_inference("snapdragon-dsp", data, EXPECTED)
    monkeypatch.setattr(tflite_inference, "why_missing", lambda _: "tensorflow is not installed")
    with pytest.raises(FarmError, match="tensorflow is not installed, which converts nets"):
        measure_inference("rpi4", data, EXPECTED)


def test_guest_does_not_import_the_project(tmp_path: Path) -> None:
    sources = tflite_inference._stage_sources(tmp_path)
    stand_in = tmp_path / "tflite_runtime"
    stand_in.mkdir()
    (stand_in / "interpreter.py").write_text("Interpreter = None\n")
    numpy = str(Path(np.__file__).parents[1])
    environment = {"PYTHONPATH": os.pathsep.join([str(sources), numpy])}
    script = "import pockengine.farm.references.tflite_guest as guest; print(guest.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(sources))


@pytest.mark.skipif(not is_available(find_engine("tf-graph")), reason="TensorFlow is not installed")
def test_tensorflow_converts_to_both_types(data: JobData, tmp_path: Path) -> None:
    write_job(tmp_path, data)
    run_module("tflite_files", [str(tmp_path)])
    sizes = {}
    for dtype in TYPES:
        file = (tmp_path / file_of(dtype)).read_bytes()
        assert file[4:8] == b"TFL3"
        sizes[dtype] = len(file)
    assert sizes["int8"] < 0.8 * sizes["f32"]
    assert np.array_equal(np.load(tmp_path / PICTURES), np.moveaxis(data.images[0], 1, -1))


@pytest.mark.skipif(not is_available(find_engine("tf-graph")), reason="TensorFlow is not installed")
def test_missing_files_are_refused_with_the_error_of_the_module(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match=r"tflite_files failed: .*cannot be read"):
        run_module("tflite_files", [str(tmp_path / "nothing")])
