"""The run of `--suite=peers`: which models, batches and engines, and where figures go."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.c.peaks import measure_peaks
from pockengine.backends.peaks import Peaks, describe_peaks
from pockengine.errors import FarmError, PockEngineError
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
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.engines import find_engine
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole

ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 170

Keep = Callable[[Sequence[Record]], None]


@dataclass(frozen=True)
class SuiteOptions:
    """What of the suite the user wants; empty: all of it. What is `done` is left out."""

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


def run_peers(options: SuiteOptions, keep: Keep) -> int:
    """Measure all that is chosen, print tables, keep records model by model; the exit status.

    What fails is reported at the end, and the others go on.
    """
    console = PlainConsole(WIDTH)
    for engine in options.engines:
        find_engine(engine)
    with step("this machine's peaks"), watching() as load:
        peaks = measure_peaks(options.threads)
    told = "; ".join(filter(None, [describe_peaks(peaks), load.mark]))
    console.print(told, soft_wrap=True)
    results: list[SuiteResult] = []
    failures: dict[str, str] = {}
    for measurement in measurements(options, peaks):
        try:
            with tempfile.TemporaryDirectory(prefix="pockengine-peers-") as folder:
                result = measure(measurement, Path(folder))
                keep(records_of(result, current_commit(), options.threads, peaks))
                console.print(lines_table(result, peaks))
                _draw(result, options.report)
        except PockEngineError as error:
            failures[f"{measurement.model}, batch {measurement.batch}"] = str(error)
            continue
        results.append(result)
        for engine, reason in result.missing.items():
            console.print(f"{engine}: {reason}", soft_wrap=True)
    return _finish(console, results, failures, options.report, peaks)


def measurements(options: SuiteOptions, peaks: Peaks) -> list[Measurement]:
    """Return what is to be measured, in order; FarmError when nothing is left."""
    result = [
        Measurement(
            model,
            batch,
            _engines(options, model),
            {name_of(name): scheme_for(name, model) for name in _schemes(options, model)},
            options.threads,
            QUICK_ROUNDS if options.quick else ROUNDS,
            peaks,
            options.bf16,
            options.tuned,
        )
        for model in options.models or (*PICTURES, *TEXTS)
        for batch in options.batches or batches_for(model)
        if (model, batch) not in options.done
    ]
    if not result:
        raise FarmError("nothing is left to measure: every chosen model and batch has its records")
    return result


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


def _finish(
    console: PlainConsole,
    results: Sequence[SuiteResult],
    failures: dict[str, str],
    report: Path | None,
    peaks: Peaks,
) -> int:
    if results:
        console.print(summary_table(results))
        console.print(schemes_table(results))
        if report is not None:
            from pockengine.farm.report.page import write_report

            console.print(f"report: {write_report(results, peaks, report)}", soft_wrap=True)
    for name, message in failures.items():
        console.print(f"FAILED {name}: {message}", soft_wrap=True)
    return 1 if failures else 0
