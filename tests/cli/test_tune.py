"""`pockengine tune` measures each kind of device; `compile --tuned` uses its choices."""

import json
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.tune import find_problems
from pockengine.backends.native.tuning import TuningProblem
from pockengine.cli.main import cli
from pockengine.cli.tune import board_meter, open_meter, step_nodes
from pockengine.cli.tune_gpu import run_over
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.transports.local import LocalTransport
from pockengine.models.find import find_model

MODEL = "pockengine.tests.cli.test_tune:perceptron"


def perceptron() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(17, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    return net.train(), (torch.randn(9, 17),)


@pytest.fixture
def counting() -> None:
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("qemu-aarch64 is not installed")
    output = subprocess.run([emulator, "-help"], capture_output=True, text=True, check=False).stdout
    if "-plugin" not in output:
        pytest.skip(f"{emulator} has no plugins to count instructions with")


def problems_of(name: str, plans: int) -> list[TuningProblem]:
    device = load_device(name)
    nodes = step_nodes(find_model(MODEL).graph(), Training(), CBackend(device))
    return find_problems(nodes, device, plans=plans)


def run_cli(*arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("counting")
def test_an_emulated_board_is_tuned_by_instructions(tmp_path: Path) -> None:
    file, folder = tmp_path / "tuned.json", tmp_path / "artifact"
    command = ("tune", MODEL, "--device", "rpi4", "--plans", "3", "--out", str(file))
    printed = run_cli(*command)
    record = json.loads(file.read_text())
    rows = record["rows"].values()
    assert record["unit"] == "guest instructions of 1 thread"
    assert rows
    assert all(0 < row["value"] <= row["default_value"] for row in rows)
    assert any(row["value"] < row["default_value"] for row in rows)
    assert "predicted for a step" in printed
    again = run_cli(*command)
    assert f"{len(rows)} of {len(rows)} problems are in the table" in again
    run_cli("compile", MODEL, "--device", "rpi4", "--tuned", str(file), "--out", str(folder))
    code = "".join(path.read_text() for path in folder.rglob("*.c"))
    for problem in problems_of("rpi4", plans=3):
        assert problem.kernels[record["rows"][problem.key]["plan"]].symbol in code


def test_an_emulated_gpu_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "tuned.json"
    command = ["tune", MODEL, "--device", "jetson-orin", "--backend", "cuda", "--out", str(out)]
    result = CliRunner().invoke(cli, command)
    assert isinstance(result.exception, FarmError)
    assert "jetson-orin-qemu is emulated, so its time is not that of a GPU" in str(result.exception)
    assert not out.exists()


def test_a_profiled_program_runs_on_a_board_with_its_files(tmp_path: Path) -> None:
    runner, rows = tmp_path / "runner", tmp_path / "rows"
    runner.write_text('#!/bin/sh\necho "$1"; cat "$2"\n', encoding="utf-8")
    runner.chmod(0o755)
    rows.write_text("of the board\n", encoding="utf-8")
    with closing(LocalTransport("lab")) as transport:
        printed = run_over(transport)(runner, {"data": rows}, ["train", "{data}"])
    assert printed == "train\nof the board\n"


def test_a_board_is_measured_over_its_transport() -> None:
    problem = problems_of("host", plans=2)[0]
    with closing(LocalTransport("lab")) as transport:
        (figures,) = board_meter(transport, load_device("host")).measure([problem])
    assert len(figures) == 2
    assert all(0 < figure.best <= figure.median for figure in figures)


def test_unmeasurable_targets_are_errors() -> None:
    board, device = board_for("rpi4-qemu", load_boards()), load_device("rpi4")
    other = replace(device, processor=replace(device.cpu, arch="riscv64"))
    with (
        pytest.raises(FarmError, match="on aarch64, hexagon only; name a physical rpi4"),
        open_meter(board, other),
    ):
        pass
