"""The run of `--suite=peers`: which models, batches and engines, and where figures go."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from pockengine.backends.c.peaks import measure_peaks
from pockengine.backends.peaks import Peaks, describe_peaks
from pockengine.farm.bench.schemes import name_of, scheme_for
from pockengine.farm.bench.suite import (
    FULL,
    PICTURES,
    REFERENCE,
    SCHEMES,
    TEXTS,
    Measurement,
    SuiteResult,
    batches_for,
    engines_for,
    measure,
)
from pockengine.farm.bench.suite_table import (
    lines_table,
    records_of,
    schemes_table,
    summary_table,
)
from pockengine.farm.cli.suites import Keep, reasons, run_suite
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.engines import find_engine
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole

ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 170


@dataclass(frozen=True)
class SuiteOptions:
    """The requested parts of the suite; empty: all of it. Those in `done` are left out."""

    models: tuple[str, ...]
    batches: tuple[int, ...]
    engines: tuple[str, ...]
    schemes: tuple[str, ...]
    threads: int
    quick: bool
    report: Path | None
    done: frozenset[tuple[str, int]] = frozenset()
    bf16: bool = False
    tuned: Path | None = None


@dataclass(frozen=True)
class PeersSuite:
    """Our step and every installed framework's, as a suite, on a machine with these peaks."""

    options: SuiteOptions
    peaks: Peaks
    width: int = WIDTH

    def plan(self) -> list[Measurement]:
        """Return the measurements."""
        return measurements(self.options, self.peaks)

    def title(self, cell: Measurement) -> str:
        """Return the model and batch."""
        return f"{cell.model}, batch {cell.batch}"

    def measure(self, cell: Measurement, folder: Path) -> SuiteResult:
        """Measure one model and batch."""
        return measure(cell, folder)

    def records(self, found: SuiteResult) -> list[Record]:
        """Return the figures of one model and batch, and of the machine."""
        return records_of(found, current_commit(), self.options.threads, self.peaks)

    def show(self, found: SuiteResult) -> list[RenderableType]:
        """Return the table, and why engines have no line; draw what needs the program."""
        _draw(found, self.options.report)
        return [lines_table(found, self.peaks), *reasons(found.missing)]

    def finish(self, all_found: Sequence[SuiteResult]) -> list[RenderableType]:
        """Return the tables of all models, and where the page is."""
        tables: list[RenderableType] = [summary_table(all_found), schemes_table(all_found)]
        if self.options.report is None:
            return tables
        from pockengine.farm.report.page import write_report

        return [*tables, f"report: {write_report(all_found, self.peaks, self.options.report)}"]


def run_peers(options: SuiteOptions, keep: Keep) -> int:
    """Measure this machine's peaks, then the suite; return the exit status."""
    for engine in options.engines:
        find_engine(engine)
    with step("this machine's peaks"), watching() as load:
        peaks = measure_peaks(options.threads)
    line = "; ".join(filter(None, [describe_peaks(peaks), load.mark]))
    PlainConsole(WIDTH).print(line, soft_wrap=True)
    return run_suite(PeersSuite(options, peaks), keep)


def measurements(options: SuiteOptions, peaks: Peaks) -> list[Measurement]:
    """Return the measurements, in order."""
    return [
        Measurement(
            model,
            batch,
            _engines(options, model),
            schemes={name_of(name): scheme_for(name, model) for name in _schemes(options, model)},
            threads=options.threads,
            rounds=QUICK_ROUNDS if options.quick else ROUNDS,
            peaks=peaks,
            bf16=options.bf16,
            tuned=options.tuned,
        )
        for model in options.models or (*PICTURES, *TEXTS)
        for batch in options.batches or batches_for(model)
        if (model, batch) not in options.done
    ]


def _schemes(options: SuiteOptions, model: str) -> tuple[str, ...]:
    """Return the chosen schemes; full is always one, for the peers."""
    return tuple(dict.fromkeys((FULL, *(options.schemes or SCHEMES.get(model, ())))))


def _engines(options: SuiteOptions, model: str) -> tuple[str, ...]:
    """Return the chosen engines; PyTorch is always one, for its numbers."""
    known = engines_for(model)
    if options.quick:  # torch.compile takes a minute a model the first time, and is rarely ahead
        known = tuple(name for name in known if not find_engine(name).compiled)
    chosen = options.engines or known
    return tuple(dict.fromkeys((REFERENCE, *chosen)))


def _draw(result: SuiteResult, report: Path | None) -> None:
    """Draw what needs the compiled program, while it is there."""
    if report is not None:
        from pockengine.farm.report.memory import draw_memory

        draw_memory(result, report)
