"""One protocol of the bench's suites: a plan of cells, each measured, recorded and shown."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import RenderableType

from pockengine.errors import PockEngineError
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole

CellT = TypeVar("CellT")
FoundT = TypeVar("FoundT")
Keep = Callable[[Sequence[Record]], None]


class Suite(Protocol[CellT, FoundT]):
    """A suite's measurements, cell by cell, and how its figures are shown."""

    @property
    def width(self) -> int:
        """Of its tables, if the output is not a terminal."""
        ...

    def plan(self) -> Sequence[CellT]:
        """Return the cells, in order; FarmError for names that do not exist."""
        ...

    def title(self, cell: CellT) -> str:
        """Return a cell's name in failures."""
        ...

    def measure(self, cell: CellT, folder: Path) -> FoundT:
        """Measure a cell with a folder for its files."""
        ...

    def records(self, found: FoundT) -> Sequence[Record]:
        """Return all figures of a cell."""
        ...

    def show(self, found: FoundT) -> Sequence[RenderableType]:
        """Return a cell's tables and lines, while its files are there."""
        ...

    def finish(self, all_found: Sequence[FoundT]) -> Sequence[RenderableType]:
        """Return the text below all tables."""
        ...


def run_suite(suite: Suite[CellT, FoundT], keep: Keep) -> int:
    """Measure all cells, keep records and show tables as they come; return the exit status.

    Failures are listed at the end; the other cells still run.
    """
    console = PlainConsole(suite.width)
    failures: dict[str, str] = {}
    results: list[FoundT] = []
    cells = suite.plan()
    if not cells:
        console.print("nothing is left to measure: every chosen model and batch has its records")
    for cell in cells:
        try:
            with tempfile.TemporaryDirectory(prefix="pockengine-suite-") as folder:
                found = suite.measure(cell, Path(folder))
                keep(suite.records(found))
                for part in suite.show(found):
                    console.print(part, soft_wrap=isinstance(part, str))
        except PockEngineError as error:
            failures[suite.title(cell)] = str(error)
            continue
        results.append(found)
    for part in suite.finish(results) if results else ():
        console.print(part, soft_wrap=isinstance(part, str))
    for name, message in failures.items():
        console.print(f"FAILED {name}: {message}", soft_wrap=True)
    return 1 if failures else 0


def reasons(missing: Mapping[str, str]) -> list[str]:
    """Return a line for each engine without a figure."""
    return [f"{engine}: {reason}" for engine, reason in missing.items()]
