"""Times measured on a busy machine are marked in every output."""

import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from pockengine.farm import load
from pockengine.farm.bench import flow
from pockengine.farm.bench.peers import OURS
from pockengine.farm.bench.result import BenchResult
from pockengine.farm.bench.run import BoardRun
from pockengine.farm.bench.table import bench_table
from pockengine.farm.boards.conditions import Conditions
from pockengine.farm.boards.facts import parse
from pockengine.farm.load import BUSY, busy_mark, watching
from pockengine.farm.results.regression import Change, compare_records, worse
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.farm.results.trend import draw, trends

RUN = EngineRun("pockengine", "1", "full")
QUIET = Setup("net", "random", 1, 1, commit="c1")
MARK = f"{BUSY}: others took 40% of its CPUs"


def step_ms(value: float, setup: Setup = QUIET) -> Record:
    figure = (RUN, "step_ms", value)
    return setup.record(*figure, spread=(value, value, 3), samples=[value] * 3)


def rendered(renderable: object) -> str:
    console = Console(width=160, file=StringIO())
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.fixture(name="stat")
def machine_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(load, "STAT", tmp_path / "stat")
    monkeypatch.setattr(time, "sleep", lambda _: load.STAT.write_text(lines.pop(0)))
    return lines


@pytest.mark.parametrize(("used", "mark"), [(5, None), (40, MARK)])
def test_cpu_use_by_others_is_measured_while_idle(
    stat: list[str], used: int, mark: str | None
) -> None:
    stat += ["cpu 100 0 50 1000 10 0 0 0 0 0\n", f"cpu {100 + used} 0 50 {1100 - used} 10 0 0 0\n"]

    assert busy_mark() == mark


def test_load_at_the_end_is_marked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([None, MARK])
    monkeypatch.setattr(load, "busy_mark", lambda seconds: next(found))

    with watching() as seen:
        pass

    assert seen.mark == MARK


def test_times_are_marked_and_sizes_are_not() -> None:
    busy = replace(QUIET, busy=MARK)

    record = busy.record(RUN, "step_ms", 3.0, note="a note")
    size = busy.record(RUN, "arena_bytes", 3.0, note="a note")

    assert record.busy
    assert record.note == f"a note; {MARK}"
    assert not size.busy
    assert Record.from_json(record.to_json()).busy
    table = rendered(bench_table([record]))
    assert "3.00 ms*" in table
    assert f"* a note; {MARK}" in table


def test_steps_of_a_board_have_its_mark() -> None:
    result = BenchResult(replace(QUIET, board="shelf-1"))
    run = BoardRun([2.0], [5.0] * 9, {}, 1 << 20, 1 << 10)
    conditions = Conditions([parse("system Linux\n", "shelf-1")], MARK)
    fields = {"name": "full", "dtype": "f32", "engine": OURS}
    trained = SimpleNamespace(**fields, run=run, conditions=conditions)

    flow.add_remote(result, trained)

    (record,) = result.records
    assert (record.metric, record.ok, record.busy) == ("step_ms", True, True)
    assert result.notes == [f"full: the board reports no conditions; {MARK}"]


def test_marked_records_are_neither_baseline_nor_verdict() -> None:
    slow = step_ms(121.9, replace(QUIET, busy=MARK))

    (now_busy,) = compare_records([slow], [step_ms(12.3)])
    (then_busy,) = compare_records([step_ms(12.3)], [slow])
    (sound,) = compare_records([step_ms(121.9)], [step_ms(12.3), slow])

    assert (now_busy.change, now_busy.why) == (Change.UNSURE, MARK)
    assert not worse([now_busy])
    assert then_busy.change is Change.NEW
    assert "busy machine" in then_busy.why
    assert sound.change is Change.WORSE


def test_trend_shows_marks_and_ignores_marked_times() -> None:
    busy = replace(QUIET, commit="c2", busy=MARK)
    records = [step_ms(12.3), step_ms(121.9, busy), step_ms(12.3, replace(QUIET, commit="c3"))]

    (trend,) = trends(records, ["c3", "c2", "c1"])

    assert [point.busy for point in trend.points] == [False, True, False]
    assert not trend.moves
    assert "1 busy" in rendered(draw(trend))


def test_free_memory_is_at_most_what_a_container_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "MEMORY", tmp_path / "meminfo")
    load.MEMORY.write_text("MemTotal: 64 kB\nMemAvailable: 32 kB\n")
    monkeypatch.setattr(load, "granted_bytes", lambda: None)
    assert load.free_bytes() == 32 * 1024

    monkeypatch.setattr(load, "granted_bytes", lambda: 7 * 1024)
    assert load.free_bytes() == 7 * 1024
