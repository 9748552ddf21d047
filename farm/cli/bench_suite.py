"""The run of `--suite=peers`: which models, batches and engines, and where figures go."""

from collections.abc import Sequence
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
from pockengine.farm.cli.suites import Choice, Keep, Suite, reasons, run_suite
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.engines import find_engine
from pockengine.terminal import PlainConsole

ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 170


def peers_suite(choice: Choice, peaks: Peaks) -> Suite[Measurement, SuiteResult]:
    """Return our step and every installed framework's as a suite, on a machine with these peaks."""

    def show(found: SuiteResult) -> list[RenderableType]:
        _draw(found, choice.report)
        return [lines_table(found, peaks), *reasons(found.missing)]

    def finish(all_found: Sequence[SuiteResult]) -> list[RenderableType]:
        tables: list[RenderableType] = [summary_table(all_found), schemes_table(all_found)]
        if choice.report is None:
            return tables
        from pockengine.farm.report.page import write_report

        return [*tables, f"report: {write_report(all_found, peaks, choice.report)}"]

    return Suite(
        measurements(choice, peaks),
        measure,
        records=lambda found: records_of(found, choice.threads, peaks),
        show=show,
        width=WIDTH,
        finish=finish,
    )


def run_peers(choice: Choice, keep: Keep) -> int:
    """Measure this machine's peaks, then the suite; return the exit status."""
    for engine in choice.engines:
        find_engine(engine)
    with step("this machine's peaks"), watching() as load:
        peaks = measure_peaks(choice.threads)
    line = "; ".join(filter(None, [describe_peaks(peaks), load.mark]))
    PlainConsole(WIDTH).print(line, soft_wrap=True)
    return run_suite(peers_suite(choice, peaks), keep)


def measurements(choice: Choice, peaks: Peaks) -> list[Measurement]:
    """Return the measurements, in order."""
    return [
        Measurement(
            model,
            batch,
            _engines(choice, model),
            schemes={name_of(name): scheme_for(name, model) for name in _schemes(choice, model)},
            threads=choice.threads,
            rounds=QUICK_ROUNDS if choice.quick else ROUNDS,
            peaks=peaks,
            bf16=choice.bf16,
            tuned=choice.tuned,
        )
        for model in choice.models or (*PICTURES, *TEXTS)
        for batch in choice.batches or batches_for(model)
        if (model, batch) not in choice.done
    ]


def _schemes(choice: Choice, model: str) -> tuple[str, ...]:
    """Return the chosen schemes; full is always one, for the peers."""
    return tuple(dict.fromkeys((FULL, *(choice.schemes or SCHEMES.get(model, ())))))


def _engines(choice: Choice, model: str) -> tuple[str, ...]:
    """Return the chosen engines; PyTorch is always one, for its numbers."""
    known = engines_for(model)
    if choice.quick:  # torch.compile takes a minute a model the first time, and is rarely ahead
        known = tuple(name for name in known if not find_engine(name).compiled)
    chosen = choice.engines or known
    return tuple(dict.fromkeys((REFERENCE, *chosen)))


def _draw(result: SuiteResult, report: Path | None) -> None:
    """Draw what needs the compiled program, while it is there."""
    if report is not None:
        from pockengine.farm.report.memory import draw_memory

        draw_memory(result, report)
