"""The environment of emulated TensorFlow: installation, staging and cache, without TensorFlow."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pockengine.errors import FarmError
from pockengine.farm.references import guest, guest_install
from pockengine.farm.references.guest import (
    FRAMEWORKS,
    GuestFigure,
    cached_guest,
    code_digest,
    measure_guest,
)
from pockengine.farm.references.guest_install import install_guest_python
from pockengine.farm.references.job import JobData
from pockengine.tests.farm.references.jobs import random_job

FIGURE = GuestFigure("tf-graph", "2.15.1", "qemu 7.2", (30, 10, 20), 1e-6)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pockengine" / "guest-tensorflow"


@pytest.fixture
def data() -> JobData:
    return random_job({"w": np.zeros(2, np.float32)}, (2, 3, 32, 32))


def keep(data: JobData) -> Path:
    file = guest._result_file(data)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"tf-graph": asdict(FIGURE)}))
    return file


def test_figures_are_cached_per_framework(data: JobData) -> None:
    keep(data)

    assert cached_guest(data, "torch") is None


def test_missing_measurements_are_not_figures(data: JobData) -> None:
    assert cached_guest(data) is None


def test_cached_figures_need_no_installation(data: JobData) -> None:
    keep(data)

    assert cached_guest(data) == {"tf-graph": FIGURE}
    assert measure_guest(data, [1.0]) == {"tf-graph": FIGURE}
    assert FIGURE.median == 20


def test_cached_figures_depend_on_the_step_but_not_on_values(data: JobData) -> None:
    keep(data)
    other_values = replace(data, images=data.images + 1, labels=data.labels[::-1].copy())
    other_rate = replace(data, job=replace(data.job, learning_rate=0.5))
    fewer = replace(data, images=data.images[:, :1], labels=data.labels[:, :1])
    sparse = replace(data, job=replace(data.job, trainable={"w": None}))
    frozen = replace(data, job=replace(data.job, batch_norm="frozen"))

    assert cached_guest(other_values) is not None
    assert cached_guest(other_rate) is not None
    assert all(cached_guest(other) is None for other in (fewer, sparse, frozen))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"tf-graph": {"counts": 3}}', '{"a": {"b": 1}}'])
def test_damaged_figures_are_measured_again(data: JobData, text: str) -> None:
    keep(data).write_text(text)

    assert cached_guest(data) is None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_staged_sources_import_without_the_project(framework: str, tmp_path: Path) -> None:
    guest._stage_sources(FRAMEWORKS[framework], tmp_path)
    program = (
        "import sys, types\n"
        "import pockengine.farm.references.serve, pockengine.models.registry\n"
        "assert not [name for name in sys.modules if name.startswith(('torch', 'rich'))]\n"
        "print(pockengine.farm.references.serve.__file__)"
    )
    path = ":".join([str(tmp_path), *(p for p in sys.path if "site-packages" in p)])

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert done.stdout.startswith(str(tmp_path)), done.stderr


@pytest.mark.parametrize(
    ("framework", "wheel", "count"),
    [("tensorflow", "tensorflow-cpu-aws==2.15.1", 28), ("torch", "torch==2.5.1", 25),
     ("mnn", "mnn==3.6.1", 3)],
)  # fmt: skip
def test_wheels_are_pinned_and_hashed(framework: str, wheel: str, count: int) -> None:
    lines = guest_install.lock_file(framework).read_text().splitlines()
    named = [line for line in lines if line and not line.startswith(("#", " "))]

    assert f"{wheel} \\" in named
    assert all("==" in line and line.endswith("\\") for line in named)
    assert len(named) == sum("--hash=sha256:" in line for line in lines) == count


def test_failed_installation_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 100, "", "E: Unable to locate package")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", fail)

    with pytest.raises(FarmError, match=r"root file system could not be installed(.|\n)*Unable to"):
        install_guest_python()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_environment_is_installed_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(guest_install, "_install", lambda *call: calls.append(call))

    found = install_guest_python()

    assert found.root.parent.is_dir()
    assert install_guest_python() == found
    assert [framework for framework, _ in calls] == ["tensorflow"]


def test_error_names_missing_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fail)

    with pytest.raises(FarmError, match="apt-get install python3-pip"):
        guest_install._pip()


class WrongWorker:
    """A stand-in for the emulated worker, with losses that differ from PyTorch's."""

    def prepare(self, *_: Any, **__: Any) -> None:
        pass

    def train(self) -> Any:
        return type("Training", (), {"losses": [1.0, 2.5]})


def test_engines_with_wrong_losses_have_no_figure(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match=r"a relative error of 2\.5e-01"):
        guest.run_engine(WrongWorker(), tmp_path, "tf-graph", [1.0, 2.0])


def test_docstrings_and_comments_do_not_invalidate_figures() -> None:
    code = 'def step(x):\n    """Do a step."""\n    return x + 1\n'
    reworded = '"""A module."""\n\ndef step(x):\n    """Train."""\n    return x + 1  # one\n'

    assert code_digest(code) == code_digest(reworded)
    assert code_digest(code) != code_digest(code.replace("1", "2"))
