"""The bench in int8: a board's run beside the oracle, which finds one wrong integer."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.integers import check_integers, kinds, train_integers
from pockengine.farm.bench.predictions import count_prediction, oracle_prediction
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.references.job import JobData, TrainingJob
from pockengine.tests.compiler.small_nets import batches, residual_net

SAMPLES = batches(2, size=9)
PICTURES = np.stack([batch["x"] for batch in SAMPLES])
JOB = TrainingJob("residual", classes=3, learning_rate=0.1)
DATA = JobData(JOB, {}, PICTURES, np.stack([batch["target"] for batch in SAMPLES]))


def compiled_for(device: str, folder: Path) -> pockengine.Compiled:
    inputs = ("x",) if load_device(device).freestanding else ()
    int8 = pockengine.Int8({"x": np.concatenate(PICTURES)}, inputs=inputs)
    graph = residual_net(size=9)
    return pockengine.compile(graph, (), device=device, quantize=int8, folder=folder / "artifact")


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_one_wrong_integer_is_found(tmp_path: Path) -> None:
    compiled = compiled_for("stm32f746", tmp_path)
    with connect(board_for("stm32f746", load_boards([BUILT_IN]))) as board:
        run = train_integers(board, compiled, DATA, 1, tmp_path)
    losses, check = check_integers(compiled, DATA, run)
    assert (check.problems, len(losses)) == ((), 2)
    wrong = run.tensors["c.0.weight"].copy()
    wrong.flat[3] ^= 1
    _, check = check_integers(
        compiled, DATA, replace(run, tensors={**run.tensors, "c.0.weight": wrong})
    )
    assert check.problems == ("integers of c.0.weight are not the oracle's",)


def test_a_machine_with_files_trains_the_oracles_integers(tmp_path: Path) -> None:
    compiled = compiled_for("host", tmp_path)
    with connect(board_for("host", load_boards([BUILT_IN]))) as board:
        run = train_integers(board, compiled, DATA, 1, tmp_path)
    _, check = check_integers(compiled, DATA, run)
    assert (check.problems, run.instructions, len(run.step_ms)) == ((), (), 2)


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64")
def test_a_prediction_is_counted_where_it_is_the_oracles(tmp_path: Path) -> None:
    compiled = compiled_for("rpi5", tmp_path)
    wanted = oracle_prediction(compiled, DATA)
    found = count_prediction(compiled.artifact, DATA, wanted, tmp_path)
    assert (found.metric, found.timing.n) == ("guest_instructions", 1)
    assert found.timing.median > 10_000
    wrong = {name: array + 0.01 for name, array in wanted.items()}
    with pytest.raises(FarmError, match="predicts something else than the oracle"):
        count_prediction(compiled.artifact, DATA, wrong, tmp_path)


@pytest.mark.parametrize(
    ("device", "both"), [("rpi4", (False, True)), ("rpi5", (False, True)), ("stm32f746", (True,))]
)
def test_f32_stands_beside_int8_where_files_are(device: str, both: tuple[bool, ...]) -> None:
    board = board_for(device, load_boards([BUILT_IN]))
    assert kinds(True, board) == both
    assert kinds(False, board) == (False,)


def test_this_machine_is_not_benched_in_int8() -> None:
    with pytest.raises(FarmError, match="--int8 is for boards, real or emulated, not for"):
        kinds(True, board_for("host", load_boards([BUILT_IN])))
