"""The run of `--suite=runtimes`: which models, schemes and runtimes, and where figures go."""

from collections.abc import Sequence

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
from pockengine.farm.cli.suites import Choice, Suite, reasons
from pockengine.farm.references.engines import RUNTIMES, find_engine

ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 150


def runtimes_suite(choice: Choice) -> Suite[RuntimesMeasurement, SuiteResult]:
    """Return our step in C, ONNX Runtime, TFLite and TVM as a suite."""
    return Suite(
        plan(choice),
        measure_runtimes,
        records=lambda found: records_of(found, choice.threads),
        show=lambda found: [runtimes_table(found, choice.threads), *reasons(found.missing)],
        width=WIDTH,
    )


def plan(choice: Choice) -> list[RuntimesMeasurement]:
    """Return the measurements, in order; FarmError for an engine that does not exist."""
    for name in choice.engines:
        _engine_name(name)
    return [
        RuntimesMeasurement(
            model,
            batch,
            {name_of(name): scheme_for(name, model) for name in _schemes(choice)},
            backends=tuple(x for x in BACKENDS if _is_requested(choice, RUNTIMES[x].engine)),
            engines=tuple(x for x in _frameworks(choice, model) if _is_requested(choice, x)),
            threads=choice.threads,
            rounds=QUICK_ROUNDS if choice.quick else ROUNDS,
            pythons=choice.pythons,
        )
        for model in choice.models or NETS
        for batch in choice.batches or (BATCH,)
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


def _schemes(choice: Choice) -> tuple[str, ...]:
    return tuple(dict.fromkeys(choice.schemes or SCHEMES))


def _frameworks(choice: Choice, model: str) -> tuple[str, ...]:
    """Return a model's own schemes, and others that the user names."""
    own = {runtime.engine for runtime in RUNTIMES.values()}
    named = (name for name in choice.engines if name not in own)
    return tuple(dict.fromkeys((*frameworks_for(model), *named)))


def _is_requested(choice: Choice, engine: str) -> bool:
    return not choice.engines or engine in choice.engines
