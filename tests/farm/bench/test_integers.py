"""The bench in int8: a board's results equal the oracle's, and one wrong integer is found."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pockengine.compiled import Compiled
from pockengine.errors import FarmError
from pockengine.farm.bench.case import make_case
from pockengine.farm.bench.integers import check_integers, kinds, train_integers
from pockengine.farm.bench.predictions import count_prediction, oracle_prediction
from pockengine.farm.boards.board import BUILT_IN, board_for, load_boards
from pockengine.farm.boards.connect import connect
from pockengine.farm.references.job import JobData
from pockengine.options import CompileOptions

MODEL, WEIGHT = "cnn-8", "block1.conv1.0.weight"


def case_for(device: str, folder: Path) -> tuple[Compiled, JobData]:
    case = make_case(MODEL, 2, 2)
    return case.compile(CompileOptions(device=device), folder / "artifact", int8=True), case.data


@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="needs qemu-system-arm")
def test_one_wrong_integer_is_found(tmp_path: Path) -> None:
    compiled, data = case_for("stm32f746", tmp_path)
    with connect(board_for("stm32f746", load_boards([BUILT_IN]))) as board:
        run = train_integers(board, compiled, data, 1, tmp_path)
    losses, check = check_integers(compiled, data, run)
    assert (check.problems, len(losses)) == ((), 2)
    wrong = run.tensors[WEIGHT].copy()
    wrong.flat[3] ^= 1
    _, check = check_integers(compiled, data, replace(run, tensors={**run.tensors, WEIGHT: wrong}))
    assert check.problems == (f"integers of {WEIGHT} are not the oracle's",)


def test_machine_with_files_matches_the_integer_oracle(tmp_path: Path) -> None:
    compiled, data = case_for("host", tmp_path)
    with connect(board_for("host", load_boards([BUILT_IN]))) as board:
        run = train_integers(board, compiled, data, 1, tmp_path)
    _, check = check_integers(compiled, data, run)
    assert (check.problems, run.instructions, len(run.step_ms)) == ((), (), 2)
    assert re.search(r"in f32 with frozen norms: loss within \d", check.note)
    elsewhere = {
        name: np.negative(x) if name == "head.weight" else x for name, x in data.weights.items()
    }
    _, check = check_integers(compiled, replace(data, weights=elsewhere), run)
    assert "turns away from PyTorch's in f32" in check.problems[-1]


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-aarch64")
def test_predictions_that_match_the_oracle_are_counted(tmp_path: Path) -> None:
    compiled, data = case_for("rpi5", tmp_path)
    expected = oracle_prediction(compiled, data)
    found = count_prediction(compiled.artifact, data, expected, tmp_path)
    assert (found.metric, found.timing.n) == ("guest_instructions", 1)
    assert found.timing.median > 10_000
    wrong = {name: array + 0.01 for name, array in expected.items()}
    with pytest.raises(FarmError, match="predicts something else than the oracle"):
        count_prediction(compiled.artifact, data, wrong, tmp_path)


@pytest.mark.parametrize(
    ("device", "both"), [("rpi4", (False, True)), ("rpi5", (False, True)), ("stm32f746", (True,))]
)
def test_f32_is_measured_beside_int8_on_boards_with_files(
    device: str, both: tuple[bool, ...]
) -> None:
    board = board_for(device, load_boards([BUILT_IN]))
    assert kinds(True, board) == both
    assert kinds(False, board) == (False,)


def test_int8_bench_is_refused_on_this_machine() -> None:
    with pytest.raises(FarmError, match="--int8 is for boards, real or emulated, not for"):
        kinds(True, board_for("host", load_boards([BUILT_IN])))
