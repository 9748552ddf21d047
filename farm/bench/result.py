"""A bench's request, its runs, and its results: records, failures and notes."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.errors import PockEngineError
from pockengine.farm.bench.check import Check
from pockengine.farm.bench.peers import Measured
from pockengine.farm.bench.run import BoardRun
from pockengine.farm.boards.board import Board
from pockengine.farm.boards.conditions import Conditions
from pockengine.farm.references.job import JobData
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup

F32, INT8 = "f32", "int8"

Keep = Callable[[Sequence[Record]], None]


@dataclass(frozen=True)
class BenchOptions:
    """The user's request; `references` are measured on `reference_schemes` (None: on all).

    `runtimes` are backends in which our step is counted on an emulated board too, `pythons`
    interpreters of those that need an environment apart. `int8` also counts predictions, where the
    board has files. `backend` is another of the device's. `by_default`: the user named no scheme.
    """

    board: Board
    model: str
    schemes: tuple[str, ...]
    steps: int
    batch: int
    threads: int
    references: tuple[str, ...] = ()
    reference_schemes: tuple[str, ...] | None = None
    runtimes: tuple[str, ...] = ()
    pythons: Mapping[str, str] = field(default_factory=dict)
    int8: bool = False
    backend: str | None = None
    by_default: bool = False


@dataclass(frozen=True)
class CheckedScheme:
    """A scheme that ran on the board and was checked; `predicted` is the oracle's, on request."""

    name: str
    dtype: str
    engine: str
    artifact: Artifact
    live: list[int]  # bytes of the arena at each kernel of the step
    data: JobData
    losses: list[float]  # PyTorch's
    run: BoardRun
    check: Check
    conditions: Conditions
    predicted: dict[str, np.ndarray] | None = None

    @property
    def title(self) -> str:
        """Its name in messages."""
        return titled(self.name, self.dtype)


@dataclass
class BenchResult:
    """A bench's results so far: records, and failures by scheme.

    `keep` stores each record as it comes, so that a run which is cut loses none.
    """

    setup: Setup
    keep: Keep = lambda _: None
    records: list[Record] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, *records: Record) -> None:
        """Take records and store them."""
        self.records += records
        self.keep(records)

    def note(self, text: str | None) -> None:
        """Keep a line to print below the table."""
        if text:
            self.notes.append(text)

    def add_measured(
        self, how: tuple[str, str], measured: Measured, busy: str | None = None
    ) -> None:
        """Record an engine's time for a scheme in a dtype; `busy` is the mark of times."""
        scheme, dtype = how
        run, timing = EngineRun(measured.engine, measured.version, scheme), measured.timing
        record = replace(self.setup, busy=busy, dtype=dtype).record
        spread = (timing.min, timing.max, timing.n)
        figures = [
            record(
                run,
                measured.metric,
                timing.median,
                spread=spread,
                samples=timing.values,
            )
        ]
        if measured.max_rel_error is not None:
            error = measured.max_rel_error
            figures.append(record(run, "max_rel_error", error))
        if measured.peak_rss_bytes:
            size = measured.peak_rss_bytes
            figures.append(record(run, "peak_rss_bytes", size))
        self.add(*figures)

    @contextlib.contextmanager
    def failing(self, scheme: str) -> Iterator[None]:
        """Keep an error as this scheme's failure, so that the others still run."""
        try:
            yield
        except PockEngineError as error:
            self.failures[scheme] = str(error)


def titled(name: str, dtype: str) -> str:
    """Return a scheme's name in messages."""
    return name if dtype == F32 else f"{name}, {dtype}"
