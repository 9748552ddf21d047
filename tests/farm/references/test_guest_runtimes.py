"""Staging of a runtime in an emulated Python, without a runtime."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.references import guest_runtimes
from pockengine.farm.references.guest import GuestFigure
from pockengine.farm.references.guest_install import GuestPython, lock_digest, lock_file
from pockengine.farm.references.guest_runtimes import measure_guest_runtime
from pockengine.farm.references.job import JobData
from pockengine.tests.farm.references.jobs import random_job


@pytest.fixture
def data() -> JobData:
    return random_job({"w": np.zeros(2, np.float32)}, (2, 3, 32, 32), steps=4)


class CountingWorker:
    """A stand-in for an emulated worker, which writes the plugin's report when it ends."""

    version = "0.1.0, runtime 1.2"

    def __init__(self, report: Path, regions: int) -> None:
        self.report, self.regions = report, regions

    def __enter__(self) -> "CountingWorker":
        return self

    def __exit__(self, *_: object) -> None:
        lines = [f"region {100 + index}" for index in range(self.regions)]
        self.report.write_text("\n".join([*lines, "total 1000", "end"]) + "\n")


def fake_emulation(monkeypatch: pytest.MonkeyPatch, regions: int) -> list[tuple[object, ...]]:
    """Replace the emulation by a fake; return the log of its calls."""
    requests: list[tuple[object, ...]] = []

    def start(guest: object, module: str, sources: Path, report: Path, cpu: str) -> CountingWorker:
        requests.append((module, cpu))
        return CountingWorker(report, regions)

    def run(worker: object, job: Path, engine: str, losses: list[float]) -> float:
        requests.append((engine, losses))
        return 1e-7

    python = GuestPython(Path("root"), Path("packages"))
    monkeypatch.setattr(guest_runtimes, "install_guest_python", lambda backend: python)
    monkeypatch.setattr(guest_runtimes, "guest_worker", start)
    monkeypatch.setattr(guest_runtimes, "run_engine", run)
    monkeypatch.setattr(guest_runtimes, "emulator_version", lambda: "qemu 7.2")
    return requests


def test_steps_are_checked_then_counted(
    data: JobData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = fake_emulation(monkeypatch, regions=3)
    figure = measure_guest_runtime(
        "onnx", "rpi4", tmp_path / "artifact", data, [4.0, 3.0, 2.0, 1.0]
    )
    versions = ("0.1.0, runtime 1.2", "qemu 7.2")
    assert figure == GuestFigure("pockengine-onnx", *versions, (100, 101, 102), 1e-7)
    assert requests == [
        ("pockengine_onnx_worker", "cortex-a72"),
        (str(tmp_path / "artifact"), [4.0, 3.0, 2.0]),
    ]


def test_incomplete_counts_are_not_figures(
    data: JobData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_emulation(monkeypatch, regions=1)
    with pytest.raises(FarmError, match="the emulated tflite marked 1 of 3 steps"):
        measure_guest_runtime("tflite", "rpi4", tmp_path / "artifact", data, [1.0] * 4)


def test_other_boards_have_no_runtime(data: JobData, tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="aarch64 boards alone, not for snapdragon-dsp"):
        measure_guest_runtime("onnx", "snapdragon-dsp", tmp_path, data, [1.0] * 4)


def test_imports_of_a_session_are_staged(tmp_path: Path) -> None:
    guest_runtimes._stage_package(tmp_path)
    names = ("onnx", "tflite", "runtimes")
    modules = [f"pockengine.backends.{name}" for name in names]
    script = "; ".join(
        ["import sys", f"sys.path.insert(0, {str(tmp_path)!r})"]
        + [f"import {name}" for name in modules]
        + ["import pockengine.farm.references.own_reference as own", "print(own.__file__)"]
    )
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))


@pytest.mark.parametrize("backend", ["onnx", "tflite", "tvm"])
def test_wheels_of_each_runtime_are_pinned(backend: str) -> None:
    lines = lock_file(backend).read_text().splitlines()
    pins = [line for line in lines if "==" in line]
    assert len(pins) == sum("--hash=sha256:" in line for line in lines)
    assert len({lock_digest(name) for name in ("onnx", "tflite", "tvm")}) == 3
