"""The suites of the bench on this machine: cells, each measured, recorded and shown."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rich.console import RenderableType

from pockengine.errors import PockEngineError
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole


class Cell(Protocol):
    """A measurement of a suite."""

    @property
    def title(self) -> str:
        """Its name in failures."""
        ...


CellT = TypeVar("CellT", bound=Cell)
FoundT = TypeVar("FoundT")
Keep = Callable[[Sequence[Record]], None]


@dataclass(frozen=True)
class Choice:
    """The user's selection of a suite; empty: all of it. A suite reads the fields that it has.

    `engines` are names of records: `pockengine-onnx`, `tf-graph`. Models with a batch in `done` are
    left out; `pythons` is what `interpreters` returns.
    """

    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    engines: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    threads: int = 1
    steps: int = 10
    quick: bool = False
    bf16: bool = False
    report: Path | None = None
    tuned: Path | None = None
    done: frozenset[tuple[str, int]] = frozenset()
    pythons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite(Generic[CellT, FoundT]):
    """A suite's cells in order, how each is measured, and how its figures are kept and shown.

    `measure` has a folder for files, which are there until `show` has returned tables and lines.
    `finish` returns the text below all tables. `width` is theirs if the output is not a terminal.
    """

    cells: Sequence[CellT]
    measure: Callable[[CellT, Path], FoundT]
    records: Callable[[FoundT], Sequence[Record]]
    show: Callable[[FoundT], Sequence[RenderableType]]
    width: int
    finish: Callable[[Sequence[FoundT]], Sequence[RenderableType]] = lambda all_found: ()


def run_suite(suite: Suite[CellT, FoundT], keep: Keep) -> int:
    """Measure all cells, keep records and show tables as they come; return the exit status.

    Failures are listed at the end; the other cells still run.
    """
    console = PlainConsole(suite.width)
    failures: dict[str, str] = {}
    results: list[FoundT] = []
    if not suite.cells:
        console.print("nothing is left to measure: every chosen model and batch has its records")
    for cell in suite.cells:
        try:
            with tempfile.TemporaryDirectory(prefix="pockengine-suite-") as folder:
                found = suite.measure(cell, Path(folder))
                keep(suite.records(found))
                for part in suite.show(found):
                    console.print(part, soft_wrap=isinstance(part, str))
        except PockEngineError as error:
            failures[cell.title] = str(error)
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
