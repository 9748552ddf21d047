"""The run of `--suite=paper`: its plan, measurements, cache and output."""

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from pockengine.farm.bench.case import dataset_of
from pockengine.farm.bench.paper.cells import Cell, PaperChoice, PaperPlan, plan
from pockengine.farm.bench.paper.emulated import EmulatedBench
from pockengine.farm.bench.paper.host import HostBench
from pockengine.farm.bench.paper.joined import joined_table, joined_tables
from pockengine.farm.bench.paper.outcome import (
    CellOutcome,
    done_cells,
    newest,
    records_of,
    setup_of,
)
from pockengine.farm.bench.paper.progress import CellProgress
from pockengine.farm.bench.paper.rows import PaperRow, figures_of, rows_of, speedups_of
from pockengine.farm.bench.paper.table import model_note, rows_table, sentence, speedup_table
from pockengine.farm.boards.board import Local
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole, duration

WIDTH = 100
ROUNDS, QUICK_ROUNDS = 5, 3

Keep = Callable[[Sequence[Record]], None]


@dataclass(frozen=True)
class PaperOptions:
    """A choice of cells, their earlier records, and how to run and show them.

    `joined` are records of other commands, whose tables stand below those of the cells.
    """

    choice: PaperChoice
    threads: int = 1
    records: tuple[Record, ...] = ()
    report: Path | None = None
    joined: tuple[Record, ...] = ()


@dataclass
class CellResults:
    """A run's results so far: records by cell, and why others have none."""

    measured: dict[Cell, list[Record]]
    reasons: dict[Cell, str] = field(default_factory=dict)


def run_paper(options: PaperOptions, keep: Keep) -> int:
    """Measure the remaining cells of a choice, print tables, write the page; return the exit
    status.
    """
    console, board = PlainConsole(WIDTH), options.choice.board
    whole = plan(options.choice)
    before = done_cells(options.records, board, options.threads)
    results = CellResults({cell: before[cell] for cell in whole.cells if cell in before})
    left = whole.without(list(results.measured))
    for line in first_lines(whole, left):
        console.print(line, soft_wrap=True)
    failures = _measure(options, left, results, keep=keep, console=console)
    results.reasons = {**whole.gaps, **failures}
    figures = figures_of(board.device)
    rows = rows_of(results.measured, results.reasons, figures)
    _show(console, rows, board.name)
    speedups = speedups_of(rows)
    if speedups:
        console.print(speedup_table(speedups, figures))
    records = [record for those in results.measured.values() for record in those]
    joined = joined_tables([*options.joined, *records]) if options.joined else []
    for table in joined:
        console.print(joined_table(table))
    for line in filter(None, (sentence(rows, speedups, figures), model_note(rows, board.device))):
        console.print(line, soft_wrap=True)
    if options.report is not None:
        from pockengine.farm.report.paper import Page, write_paper

        page = write_paper(Page(board, rows, records, joined), options.report)
        console.print(f"report: {page}", soft_wrap=True)
    return 1 if failures else 0


def first_lines(whole: PaperPlan, left: PaperPlan) -> list[str]:
    """Return the first lines: the cells, the measure, the estimate."""
    board, cells = whole.board, whole.cells
    kinds = [
        f"{len({getattr(cell, name) for cell in cells})} {name}s"
        for name in ("model", "scheme", "engine")
    ]
    local = isinstance(board.place, Local)
    measure = (
        "Measure: milliseconds of a training step, engines in turn."
        if local
        else "Measure: guest instructions of a training step of one thread; not time."
    )
    lanes = len(left.lanes())
    idle = f"{lanes} cores are" if lanes > 1 else "a core is"
    return [
        f"The paper's tables on {board.name}: {len(cells)} cells of {', '.join(kinds)}; "
        f"{len(whole.gaps)} gaps with a reason; {len(cells) - len(left.cells)} done before.",
        f"{measure} Each cell's losses are compared with PyTorch's first, of ours the weights too.",
        f"Estimate: {duration(left.seconds)} where {idle} idle; cells whose inputs were "
        "measured before take their figure from the cache.",
    ]


def _measure(
    options: PaperOptions, left: PaperPlan, results: CellResults, keep: Keep, console: PlainConsole
) -> dict[Cell, str]:
    """Measure the cells that are left; return why some have no figure."""
    board, commit = options.choice.board, current_commit()
    failures: dict[Cell, str] = {}
    progress = CellProgress(left, lambda text: console.print(text, soft_wrap=True))
    lock = threading.Lock()

    def store(cell: Cell, outcome: CellOutcome) -> None:
        setup = setup_of(
            cell, board, commit, dataset=dataset_of(cell.model), threads=options.threads
        )
        records = records_of(cell, outcome, setup)
        with lock:
            keep(records)
            results.measured[cell] = newest(records)
        size = outcome.value / (1e6 if outcome.metric == "guest_instructions" else 1)
        unit = "M instructions" if outcome.metric == "guest_instructions" else "ms"
        text = f"{size:,.1f} {unit}, within {outcome.max_rel_error:.0e} of PyTorch"
        progress.done(cell, text)

    def failed(cell: Cell, reason: str) -> None:
        failures[cell] = reason
        progress.done(cell, f"gap: {reason}")

    if left.cells:
        with tempfile.TemporaryDirectory(prefix="pockengine-paper-") as folder:
            _bench(options, left, Path(folder)).run(store, failed)
    return failures


def _bench(options: PaperOptions, left: PaperPlan, folder: Path) -> EmulatedBench | HostBench:
    if isinstance(options.choice.board.place, Local):
        rounds = QUICK_ROUNDS if options.choice.quick else ROUNDS
        return HostBench(left, folder, options.threads, rounds)
    return EmulatedBench(left, folder)


def _show(console: PlainConsole, rows: Sequence[PaperRow], board: str) -> None:
    """Print a table for each model and batch, and below it why cells have no figure."""
    for (model, batch), group in groupby(rows, key=lambda row: (row.cell.model, row.cell.batch)):
        those = list(group)
        console.print(rows_table(model, batch, those, board))
        for reason, engines in _by_reason(those).items():
            console.print(f"gap: {', '.join(engines)}: {reason}", soft_wrap=True)


def _by_reason(rows: Sequence[PaperRow]) -> Mapping[str, list[str]]:
    """Return the cells without a figure by their reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            found.setdefault(row.reason, []).append(f"{row.cell.engine} {row.cell.scheme}")
    return found
