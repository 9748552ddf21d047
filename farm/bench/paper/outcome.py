"""A cell's outcome, and its cache, so that no cell is measured twice."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pockengine.farm.bench.paper.cells import Cell
from pockengine.farm.boards.board import Board
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.folders import cache_folder

SIZES = ("arena_bytes", "binary_bytes", "peak_rss_bytes", "modelled_ms")


@dataclass(frozen=True)
class CellOutcome:
    """A checked cell: the counts or milliseconds of its steps, and its cost. Zero: unknown."""

    version: str
    metric: str
    values: tuple[float, ...]
    max_rel_error: float
    arena_bytes: int = 0
    binary_bytes: int = 0
    peak_rss_bytes: int = 0
    modelled_ms: float = 0.0
    note: str = ""

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.values)


class CellOutcomes:
    """CellOutcomes by the hash of all that they depend on, a file each."""

    def __init__(self, folder: Path | None = None) -> None:
        """Keep them in a folder; None: in the user's cache."""
        self.folder = folder or cache_folder() / "paper-cells"

    def find(self, digest: str) -> CellOutcome | None:
        """Return the outcome for the same inputs; None if there is none."""
        try:
            values = json.loads((self.folder / f"{digest}.json").read_text())
            return CellOutcome(**{**values, "values": tuple(values["values"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, digest: str, outcome: CellOutcome) -> None:
        """Store an outcome."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{digest}.{os.getpid()}"
        partial.write_text(json.dumps(asdict(outcome)))
        os.replace(partial, self.folder / f"{digest}.json")


def records_of(cell: Cell, outcome: CellOutcome, setup: Setup) -> list[Record]:
    """Return the figures of a cell as records."""
    run = EngineRun(cell.engine, outcome.version, cell.scheme)
    spread = (min(outcome.values), max(outcome.values), len(outcome.values))
    found = [
        setup.record(
            run,
            outcome.metric,
            outcome.value,
            spread=spread,
            samples=tuple(outcome.values),
            note=outcome.note or None,
        ),
        setup.record(run, "max_rel_error", outcome.max_rel_error),
    ]
    sizes = ((name, getattr(outcome, name)) for name in SIZES)
    return found + [setup.record(run, name, size) for name, size in sizes if size]


def setup_of(cell: Cell, board: Board, commit: str, dataset: str, threads: int = 1) -> Setup:
    """Return the fields shared by all records of a cell."""
    work, place = (cell.model, dataset, cell.batch), (board.device, board.name, board.emulated)
    return Setup(*work, threads, *place, commit=commit)


def done_cells(
    records: Sequence[Record], board: Board, threads: int = 1
) -> dict[Cell, list[Record]]:
    """Return the records of cells that were measured and checked on a board with these threads."""
    place = board.device, board.emulated, threads
    found: dict[Cell, list[Record]] = {}
    for record in records:
        same = (record.device, record.emulated, record.threads) == place
        if same and record.ok and record.dtype == "f32":
            cell = Cell(record.model, record.batch, record.scheme, record.engine)
            found.setdefault(cell, []).append(record)
    metrics = {cell: {record.metric for record in those} for cell, those in found.items()}
    speed = {"guest_instructions", "step_ms"}
    return {
        cell: newest(those)
        for cell, those in found.items()
        if metrics[cell] & speed and "max_rel_error" in metrics[cell]
    }


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each metric."""
    return list({record.metric: record for record in records}.values())
