"""The plan of the paper's tables: cells, gaps, lanes, and the estimate of the time left."""

from dataclasses import replace

import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.paper import cells
from pockengine.farm.bench.paper.cells import (
    ENGINES,
    OURS,
    SCHEMES,
    TENSORFLOW,
    Cell,
    PaperChoice,
    plan,
)
from pockengine.farm.bench.paper.progress import CellProgress
from pockengine.farm.boards.board import Board, Local, board_for, load_boards
from pockengine.terminal import duration

MODEL = "mobilenet_v2-0.35-64"


@pytest.fixture(scope="module")
def rpi4() -> Board:
    return board_for("rpi4", load_boards())


@pytest.fixture
def choice(rpi4: Board) -> PaperChoice:
    return PaperChoice(rpi4, models=(MODEL,), batches=(1,))


def test_every_cell_is_planned_or_has_a_reason(choice: PaperChoice) -> None:
    whole = plan(choice)

    assert len(whole.cells) + len(whole.gaps) == len(SCHEMES) * len(ENGINES)
    assert set(whole.gaps) == {Cell(MODEL, 1, scheme, "mnn-train") for scheme in SCHEMES[1:]}
    lanes = whole.lanes()
    assert sorted(cell for lane in lanes for cell in lane) == sorted(whole.cells)


def test_lanes_take_equally_long_and_share_networks(rpi4: Board) -> None:
    quick = replace(plan(PaperChoice(rpi4, quick=True)), cores=2)

    first, second = quick.lanes()

    networks = [{(cell.framework, *cell.job[:2]) for cell in lane} for lane in (first, second)]
    assert not networks[0] & networks[1]
    assert abs(quick.lane_seconds(first) - quick.lane_seconds(second)) < 0.1 * quick.seconds


def test_long_cells_are_spread_over_all_cores(rpi4: Board) -> None:
    choice = PaperChoice(rpi4, models=("bert_base-128",), batches=(4,), engines=TENSORFLOW)

    lanes = [replace(plan(choice), cores=cores).lanes() for cores in (1, 6, 16)]

    assert [[len(lane) for lane in one] for one in lanes] == [[6], [1] * 6, [1] * 6]


def test_this_machine_has_one_lane_on_any_number_of_cores(choice: PaperChoice) -> None:
    whole = plan(replace(choice, board=Board("host", "host", Local())))

    assert [len(lane) for lane in replace(whole, cores=16).lanes()] == [len(whole.cells)]


def test_cores_without_memory_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "detect_cores", lambda: 8)
    monkeypatch.setattr(cells, "free_bytes", lambda: 3 * cells.LANE_BYTES + 1)
    assert cells.usable_cores() == 3

    monkeypatch.setattr(cells, "free_bytes", lambda: 0)
    assert cells.usable_cores() == 1


def test_quick_suite_is_large_and_takes_twenty_minutes(rpi4: Board) -> None:
    quick = replace(plan(PaperChoice(rpi4, quick=True)), cores=2)

    assert len(quick.cells) >= 40
    assert {cell.engine for cell in quick.cells} == set(ENGINES)
    assert {cell.scheme for cell in quick.cells} == set(SCHEMES)
    assert not any(cell.imports_transformers for cell in quick.cells)
    assert quick.seconds < 20 * 60
    assert replace(plan(PaperChoice(rpi4)), cores=2).seconds > 10 * quick.seconds


def test_gaps_of_a_board_without_linux_name_the_command_to_run() -> None:
    whole = plan(PaperChoice(board_for("stm32f746", load_boards()), models=(MODEL,)))

    assert not whole.cells
    reason = whole.gaps[Cell(MODEL, 1, "full", OURS)]
    assert f"bench --device=stm32f746 --model={MODEL} --int8" in reason
    with pytest.raises(FarmError, match="unknown reference engine 'nonsense'"):
        plan(PaperChoice(board_for("rpi4", load_boards()), engines=("nonsense",)))


def test_estimate_ignores_a_short_lane_that_just_started(choice: PaperChoice) -> None:
    whole, now = replace(plan(choice), cores=2), [0.0]
    progress = CellProgress(whole, lambda _: None, lambda: now[0])
    now[0] = 60.0
    progress.done(whole.lanes()[1][0], "1.0 M")

    assert whole.seconds < progress.seconds_left() < 20 * whole.seconds


def test_progress_learns_how_slow_a_machine_is(choice: PaperChoice) -> None:
    whole, now = replace(plan(choice), cores=2), [0.0]
    messages: list[str] = []
    progress = CellProgress(whole, messages.append, lambda: now[0])
    lane = whole.lanes()[0]
    for cell in lane[: len(lane) // 2]:
        now[0] += 10 * whole.seconds / len(lane)
        progress.done(cell, "1.0 M")

    left = whole.without(lane[: len(lane) // 2]).seconds
    assert progress.seconds_left() > 5 * left
    assert messages[0].startswith(
        f"1 of {len(whole.cells)} done, {len(whole.cells) - 1} left, about "
    )
    assert [duration(x) for x in (40, 420, 7500)] == ["40 s", "7 min", "2 h 5 min"]
