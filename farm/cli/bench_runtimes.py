"""The run of `--suite=runtimes`: which models, schemes and runtimes, and where figures go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import RenderableType

from pockengine.errors import FarmError
from pockengine.farm.bench.runtimes import (
    BACKENDS,
    BATCH,
    NETS,
    SCHEMES,
    RuntimesMeasurement,
    frameworks_for,
    measure_runtimes,
)
from pockengine.farm.bench.runtimes_table import runtimes_table
from pockengine.farm.bench.schemes import name_of, scheme_for
from pockengine.farm.bench.suite import SuiteResult
from pockengine.farm.bench.suite_table import records_of
from pockengine.farm.cli.suites import reasons
from pockengine.farm.references.engines import RUNTIMES, find_engine
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record

ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 150


@dataclass(frozen=True)
class RuntimesOptions:
    """The user's selection of the suite; empty: all.

    `engines` are names of records: `pockengine-onnx`, `tf-graph`. `pythons` is what
    `interpreters` returns.
    """

    models: tuple[str, ...]
    batches: tuple[int, ...]
    engines: tuple[str, ...]
    schemes: tuple[str, ...]
    threads: int
    quick: bool
    pythons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RuntimesSuite:
    """Our step in C, ONNX Runtime, TFLite and TVM, as a suite."""

    options: RuntimesOptions
    width: int = WIDTH

    def plan(self) -> list[RuntimesMeasurement]:
        """Return the measurements."""
        return plan(self.options)

    def title(self, cell: RuntimesMeasurement) -> str:
        """Return the model and batch."""
        return f"{cell.model}, batch {cell.batch}"

    def measure(self, cell: RuntimesMeasurement, folder: Path) -> SuiteResult:
        """Measure one model and batch."""
        return measure_runtimes(cell, folder)

    def records(self, found: SuiteResult) -> list[Record]:
        """Return the figures of one model and batch."""
        return records_of(found, current_commit(), self.options.threads)

    def show(self, found: SuiteResult) -> list[RenderableType]:
        """Return the table, and why engines have no line."""
        return [runtimes_table(found, self.options.threads), *reasons(found.missing)]

    def finish(self, all_found: Sequence[SuiteResult]) -> list[RenderableType]:
        """Return nothing."""
        return []


def plan(options: RuntimesOptions) -> list[RuntimesMeasurement]:
    """Return the measurements, in order; FarmError for an engine that does not exist."""
    for name in options.engines:
        _engine_name(name)
    return [
        RuntimesMeasurement(
            model,
            batch,
            {name_of(name): scheme_for(name, model) for name in _schemes(options)},
            backends=tuple(x for x in BACKENDS if _is_requested(options, RUNTIMES[x].engine)),
            engines=tuple(x for x in _frameworks(options, model) if _is_requested(options, x)),
            threads=options.threads,
            rounds=QUICK_ROUNDS if options.quick else ROUNDS,
            pythons=options.pythons,
        )
        for model in options.models or NETS
        for batch in options.batches or (BATCH,)
    ]


def interpreters(texts: Sequence[str]) -> dict[str, str]:
    """Read ENGINE=PATH pairs, our runtimes by backend; FarmError for another form or engine."""
    pairs = [text.partition("=") for text in texts]
    for name, sign, path in pairs:
        if not (name and sign and path):
            raise FarmError(f"--python takes ENGINE=INTERPRETER, not {name + sign + path!r}")
    return {_engine_name(name): path for name, _, path in pairs}


def _engine_name(engine: str) -> str:
    """Return an engine's name, or the backend of one of our runtimes; FarmError if unknown."""
    own = {runtime.engine: runtime.backend for runtime in RUNTIMES.values()}
    return own[engine] if engine in own else find_engine(engine).name


def _schemes(options: RuntimesOptions) -> tuple[str, ...]:
    return tuple(dict.fromkeys(options.schemes or SCHEMES))


def _frameworks(options: RuntimesOptions, model: str) -> tuple[str, ...]:
    """Return a model's own schemes, and others that the user names."""
    own = {runtime.engine for runtime in RUNTIMES.values()}
    named = (name for name in options.engines if name not in own)
    return tuple(dict.fromkeys((*frameworks_for(model), *named)))


def _is_requested(options: RuntimesOptions, engine: str) -> bool:
    return not options.engines or engine in options.engines
