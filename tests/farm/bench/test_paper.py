"""The paper's tables: measured and resumed cells, comparison with published figures, the page."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.case import make_case
from pockengine.farm.bench.paper import emulated
from pockengine.farm.bench.paper.cells import (
    ENGINES,
    OURS,
    SCHEMES,
    Cell,
    PaperChoice,
    PaperPlan,
    paper_scheme,
    plan,
)
from pockengine.farm.bench.paper.emulated import EmulatedBench, Fail, Keep
from pockengine.farm.bench.paper.joined import joined_table, joined_tables
from pockengine.farm.bench.paper.outcome import (
    CellOutcome,
    CellOutcomes,
    done_cells,
    records_of,
    setup_of,
)
from pockengine.farm.bench.paper.rows import figures_of, rows_of, speedups_of
from pockengine.farm.bench.paper.table import model_note, rows_table, sentence
from pockengine.farm.boards.board import Board, board_for, load_boards
from pockengine.farm.cli import bench_paper
from pockengine.farm.cli.bench_paper import PaperOptions, run_paper
from pockengine.farm.cli.suites import Suite, reasons, run_suite
from pockengine.farm.results.results import Record, read_lines, write_lines
from pockengine.models.tiny_training import convert, published

MODEL = "mobilenet_v2-0.35-64"
STEPS = {OURS: 10e6, "tf-graph": 60e6, "tf-eager": 90e6, "torch-eager": 80e6, "mnn-train": 40e6}


@pytest.fixture(scope="module")
def rpi4() -> Board:
    return board_for("rpi4", load_boards())


@pytest.fixture
def choice(rpi4: Board) -> PaperChoice:
    return PaperChoice(rpi4, models=(MODEL,), batches=(1,))


class FakeBench:
    """Return known instruction counts for all cells, and fail the cells of `broken` engines."""

    def __init__(self, cells: PaperPlan, broken: tuple[str, ...] = ()) -> None:
        self.cells, self.broken = cells.cells, broken

    def run(self, keep: Keep, fail: Fail) -> None:
        for cell in self.cells:
            if cell.engine in self.broken:
                fail(cell, "its losses are off by 1")
            else:
                steps = STEPS[cell.engine] * (0.5 if cell.scheme == "sparse" else 1.0)
                keep(cell, CellOutcome("1.0", "guest_instructions", (steps, steps), 1e-6))


@pytest.mark.parametrize(
    ("net", "model"), [("mcunet-5fps", "mcunet-64"), ("mbv2-w0.35", "mobilenet_v2-0.35-64")]
)
def test_sparse_matches_the_published_scheme(net: str, model: str) -> None:
    case = make_case(model, 1, 1, plain=True)
    theirs = next(x for x in published() if x.net == net and 90 < x.budget_kb < 110)
    leading = replace(theirs.config, by="leading")

    trained = case.for_scheme(paper_scheme("sparse", model)).job.trainable

    expected = convert(leading, case.graph, "sparse").resolve(case.graph)
    assert trained == {
        name: None if channels is None else (min(channels), max(channels) + 1)
        for name, channels in expected.items()
    }


def test_earlier_measurements_of_the_same_inputs_are_found(tmp_path: Path) -> None:
    outcome = CellOutcome("1.0", "guest_instructions", (3.0, 5.0), 1e-6, arena_bytes=7)
    outcomes = CellOutcomes(tmp_path)
    assert outcomes.find("abc") is None

    outcomes.keep("abc", outcome)

    assert CellOutcomes(tmp_path).find("abc") == outcome
    (tmp_path / "abc.json").write_text("{")
    assert outcomes.find("abc") is None


def test_runs_are_recorded_and_resumed(
    choice: PaperChoice,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "records.jsonl"
    runs: list[tuple[Cell, ...]] = []

    def bench(_: PaperOptions, left: PaperPlan, __: Path) -> FakeBench:
        runs.append(left.cells)
        return FakeBench(left, ("torch-eager",) if len(runs) == 1 else ())

    monkeypatch.setattr(bench_paper, "_bench", bench)

    def keep(records: list[Record]) -> None:
        write_lines(records, file)

    assert run_paper(PaperOptions(choice), keep) == 1
    first = capsys.readouterr().out
    status = run_paper(PaperOptions(choice, records=read_lines(file)), keep)
    second = capsys.readouterr().out

    assert status == 0
    assert {cell.engine for cell in runs[1]} == {"torch-eager"}
    assert "0 done before" in first
    assert "gap: torch-eager full, torch-eager bias-only, torch-eager sparse: its losses" in first
    assert f"{len(runs[0]) - 3} done before" in second
    assert "Full training takes 6.0 times fewer instructions than TensorFlow's graph, the" in second
    assert "The paper's speed-up on this board: 13 to 21 times" in second
    assert all(len(line) <= 100 for line in second.splitlines() if line.startswith("│"))
    records = read_lines(file)
    assert set(done_cells(records, choice.board)) == set(plan(choice).cells)
    assert not done_cells(records, choice.board, threads=2)
    assert not done_cells([replace(one, emulated=False) for one in records], choice.board)


def measured(choice: PaperChoice) -> tuple[dict[Cell, list[Record]], dict[Cell, str]]:
    records: dict[Cell, list[Record]] = {}

    def keep(cell: Cell, outcome: CellOutcome) -> None:
        setup = setup_of(cell, choice.board, "abc", "photographs")
        records[cell] = records_of(cell, outcome, setup)

    whole = plan(choice)
    FakeBench(whole).run(keep, lambda *_: None)
    return records, whole.gaps


def test_rows_are_compared_with_tensorflow_and_the_paper(rpi4: Board) -> None:
    model = "mobilenet_v2-1-224"
    records, gaps = measured(PaperChoice(rpi4, models=(model,), batches=(1,)))
    ours = Cell(model, 1, "full", OURS)
    spread = {"value": 80.0, "min": 80.0, "max": 80.0, "samples": None}
    modelled = replace(records[ours][0], metric="modelled_ms", unit="ms", **spread)
    records[ours].append(modelled)

    rows = rows_of(records, gaps, figures_of("rpi4"))

    row = next(row for row in rows if row.cell == ours)
    assert (row.over_tensorflow, row.paper_over) == (6.0, "13 to 21")
    assert (row.modelled_ms, row.paper_ms, row.paper_ratio) == (80.0, 160.0, 2.0)
    assert all(row.reason for row in rows if row.value is None)
    (speedup,) = speedups_of(rows)
    assert (speedup.by, speedup.eager, speedup.graph) == ("instructions", 9.0, 6.0)
    assert speedup.sparse == 12.0
    theirs = Cell(model, 1, "full", "tf-graph")
    records[theirs].append(replace(modelled, engine="tf-graph", value=400.0, min=400.0, max=400.0))
    rows = rows_of(records, gaps, figures_of("rpi4"))
    assert [(x.by, x.graph) for x in speedups_of(rows)][1:] == [("modelled time", 5.0)]
    assert "5.0 times less modelled time" in sentence(rows, speedups_of(rows), figures_of("rpi4"))
    assert "not measured; the model is" in model_note(rows, "rpi4")
    assert rows_table(model, 1, rows, "rpi4").row_count == len(SCHEMES) * len(ENGINES)


def other_records(like: Record) -> list[Record]:
    """Return records of other commands: a rung of the ladder, a DSP, accuracies, a planned step."""

    def record(metric: str, value: float, **fields: str) -> Record:
        figures = {"value": value, "min": value * 0.9, "max": value * 1.1, "samples": None}
        return replace(like, metric=metric, engine=OURS, note=None, **figures, **fields)

    mbv2 = {"model": "mbv2-w0.35", "scheme": "sparse"}
    llama = {"model": "llama2-7b", "scheme": "sparse"}
    paper = replace(record("step_ms", 900.0, **llama), engine="paper")
    dsp = replace(record("guest_instructions", 84e6, dtype="f32", **mbv2), device="snapdragon-dsp")
    return [
        record("arena_bytes", 131e3, dtype="int8", **mbv2),
        replace(record("guest_instructions", 79.9e6, dtype="int8", **mbv2), device="stm32f746"),
        *(dsp, replace(dsp, dtype="int8", value=7e6, min=7e6, max=7e6)),
        record("accuracy", 0.7, model="resnet8", scheme="full", dataset="cifar10"),
        record("accuracy", 0.5, model="resnet8", scheme="sparse", dataset="cifar10"),
        record("accuracy", 0.5, model="resnet20", scheme="sparse", dataset="cifar10"),
        record("planned_bytes", 42.4e9, **llama),
        record("modelled_ms", 480.0, **llama),
        replace(record("planned_bytes", 18e9, **llama), note="8-bit states"),
        paper,
    ]


def test_records_of_other_commands_are_compared_with_the_paper(rpi4: Board) -> None:
    records, _ = measured(PaperChoice(rpi4, models=(MODEL,), batches=(1,)))
    like = next(iter(records.values()))[0]

    memory, chip, dsp, accuracy, llama = joined_tables(other_records(like))

    by_rung = {row[0]: row[1:] for row in memory.rows}
    assert by_rung["and reordered"] == ("mbv2-w0.35", "1", "0.131", "0.141", "1.08")
    assert by_rung["TensorFlow"] == ("not measured", "-", "-", "652", "-")
    assert chip.rows == (("mbv2-w0.35", "sparse", OURS, "79.9", "-", "-", "-"),)
    assert "373 ms" in chip.caption
    assert dsp.rows == (("mbv2-w0.35, batch 1", "sparse", "step", "84.0", "7.0", "12.00"),)
    assert accuracy.rows == (("resnet8, cifar10", "70.0 ± 7.0", "-", "50.0 ± 5.0", "-"),)
    assert llama.rows == (("sparse, f32", "42.4", "0.48", "-", "0.90", "-", "-"),)
    assert joined_tables([]) == []
    assert all(joined_table(table).row_count for table in (memory, chip, dsp, accuracy, llama))


def test_page_has_every_row_and_a_chart(rpi4: Board, tmp_path: Path) -> None:
    page = pytest.importorskip("pockengine.farm.report.paper")
    records, gaps = measured(PaperChoice(rpi4, models=(MODEL,), batches=(1, 4)))
    rows = rows_of(records, gaps, figures_of("rpi4"))
    flat = [record for those in records.values() for record in those]

    joined = joined_tables(other_records(flat[0]))
    html = page.write_paper(page.Page(rpi4, rows, flat, joined), tmp_path).read_text()
    markdown = (tmp_path / "README.md").read_text()

    others = sum(1 + len(table.rows) for table in joined)
    assert html.count("<tr") == len(rows) + 2 + 3 + others  # two headings, and the speed-ups
    for text in (html, markdown):
        assert "MNN trains everything here" in text
        assert "13 to 21" in text
    assert "| sparse | pockengine | 5.0 | 6.00 |" in markdown
    assert (tmp_path / "rpi4.svg").read_text().count("mobilenet_v2-0.35-64") >= 1


def test_chart_names_the_engines_that_have_a_figure(rpi4: Board, tmp_path: Path) -> None:
    page = pytest.importorskip("pockengine.farm.report.paper")
    choice = PaperChoice(rpi4, models=(MODEL,), batches=(1,), engines=(OURS, "tf-graph"))
    records, gaps = measured(choice)
    page.draw_speedups(rows_of(records, gaps, figures_of("rpi4")), "rpi4", tmp_path / "bars.svg")

    drawn = (tmp_path / "bars.svg").read_text()
    assert "tf-graph" in drawn
    assert "torch-eager" not in drawn


def test_failing_cells_do_not_stop_others(
    choice: PaperChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: EmulatedBench, cell: Cell, *_: object) -> CellOutcome:
        if cell.engine == "tf-graph":
            raise FarmError("no")
        return CellOutcome("1.0", emulated.METRIC, (1.0,), 0.0)

    monkeypatch.setattr(EmulatedBench, "_measured", wrong)
    saved: list[Cell] = []
    failed: list[Cell] = []
    whole = plan(choice)
    bench = EmulatedBench(whole, tmp_path, CellOutcomes(tmp_path))

    bench.run(lambda cell, _: saved.append(cell), lambda cell, _: failed.append(cell))

    assert {cell.engine for cell in failed} == {"tf-graph"}
    assert sorted((*saved, *failed)) == sorted(whole.cells)


def test_an_interrupted_run_ends_its_lanes_and_their_processes(
    choice: PaperChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Cell] = []

    def endless(self: EmulatedBench, cell: Cell, *_: object) -> CellOutcome:
        measured.append(cell)
        if len(measured) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        subprocess.run(["sleep", "600"], check=False)
        raise FarmError("it was killed")

    monkeypatch.setattr(EmulatedBench, "_measured", endless)
    two = replace(plan(choice), cores=2)
    bench = EmulatedBench(two, tmp_path, CellOutcomes(tmp_path))
    failed = MagicMock()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    with pytest.raises(KeyboardInterrupt):
        bench.run(MagicMock(), failed)
    signal.signal(signal.SIGINT, before)

    assert len(measured) == 2
    failed.assert_not_called()


def test_both_lanes_may_run_one_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "GuestProcess", lambda _, folder, *rest: nullcontext(folder))
    with ExitStack() as stack:
        lanes = [emulated._Guests(tmp_path, "cortex-a72", stack, None) for _ in range(2)]
        folders = {str(lane.find("tensorflow")) for lane in lanes}
    assert len(folders) == 2


@dataclass(frozen=True)
class ToyCell:
    number: int

    @property
    def title(self) -> str:
        return f"cell {self.number}"


def measure_toy(cell: ToyCell, folder: Path) -> int:
    if cell.number == 2:
        raise FarmError("it is 2")
    (folder / "file").write_text("")
    return 10 * cell.number


def test_suite_continues_after_a_failing_cell(capsys: pytest.CaptureFixture[str]) -> None:
    saved: list[Sequence[Record]] = []

    toy = Suite(
        [ToyCell(1), ToyCell(2), ToyCell(3)],
        measure_toy,
        records=lambda found: [],
        show=lambda found: [f"found {found}", *reasons({"engine": "not here"})],
        width=80,
        finish=lambda all_found: [f"all {list(all_found)}"],
    )

    status = run_suite(toy, saved.append)

    assert status == 1
    assert len(saved) == 2
    assert capsys.readouterr().out.splitlines() == [
        *("found 10", "engine: not here", "found 30", "engine: not here"),
        *("all [10, 30]", "FAILED cell 2: it is 2"),
    ]
