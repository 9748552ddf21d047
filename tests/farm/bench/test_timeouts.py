"""Timeouts of the paper's cells: the longest take half a day under emulation."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pockengine.farm.bench.paper import emulated
from pockengine.farm.bench.paper.cells import OURS, Cell, PaperPlan, seconds_of
from pockengine.farm.bench.paper.emulated import EmulatedBench
from pockengine.farm.boards.board import board_for, load_boards

LONG = ("resnet50-224", 8, "full")


@pytest.fixture
def bench(tmp_path: Path) -> EmulatedBench:
    return EmulatedBench(PaperPlan(board_for("rpi4", load_boards()), (), {}), tmp_path)


def test_a_framework_may_take_longer_than_estimated(bench: EmulatedBench) -> None:
    cell, process = Cell(*LONG, "mnn-train"), MagicMock()
    bench.model = None
    bench._theirs(cell, MagicMock(), process)
    assert process.worker.timeout > 2 * seconds_of(cell) > 24 * 3600


def test_the_model_may_take_longer_than_estimated(
    bench: EmulatedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, model = Cell(*LONG, OURS), MagicMock()
    monkeypatch.setattr(emulated, "model_regions", model)
    bench._repeated(cell, [], 2)
    assert model.call_args.kwargs["timeout"] > 2 * seconds_of(cell) > 8 * 3600
