"""The run of `--suite=llm`: which models, lengths, schemes and engines, and where figures go."""

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.bench.llm import FORMS, PEERS, LlmMeasurement, measure_llm
from pockengine.farm.bench.llm_case import KNOWN
from pockengine.farm.bench.llm_table import llm_records, llm_table
from pockengine.farm.bench.schemes import check_decoders
from pockengine.farm.cli.base import from_user
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record
from pockengine.terminal import PlainConsole

MODEL, LENGTHS, BATCH = "llama-110m", (256, 512), 1
ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 150
ENGINES = (*FORMS, *dict.fromkeys(name for names in PEERS.values() for name in names))
BLOCKS = re.compile(r"sparse-\d+-\d+$")
"""The preset `sparse` in some blocks, measured beside what `sparse` is."""


@dataclass(frozen=True)
class LlmOptions:
    """What of the suite the user wants; empty: all of it. `engines` are names of records."""

    models: tuple[str, ...]
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    engines: tuple[str, ...]
    schemes: tuple[str, ...]
    threads: int
    steps: int
    quick: bool


def run_llm(options: LlmOptions, keep: Callable[[Sequence[Record]], None]) -> int:
    """Measure all that is chosen, print a table of each, keep records; return the exit status."""
    console = PlainConsole(WIDTH)
    failures: dict[str, str] = {}
    for measurement in llm_plan(options):
        title = f"{measurement.model}, {measurement.batch} x {measurement.length}"
        try:
            with tempfile.TemporaryDirectory(prefix="pockengine-llm-") as folder:
                result = measure_llm(measurement, Path(folder))
        except PockEngineError as error:
            failures[title] = str(error)
            continue
        keep(llm_records(result, current_commit(), options.threads))
        console.print(llm_table(result, options.threads))
        for engine, reason in result.missing.items():
            console.print(f"{engine}: {reason}", soft_wrap=True)
    for name, message in failures.items():
        console.print(f"FAILED {name}: {message}", soft_wrap=True)
    return 1 if failures else 0


def llm_plan(options: LlmOptions) -> list[LlmMeasurement]:
    """Return what is to be measured, in order."""
    engines = options.engines or tuple(
        name for name in ENGINES if not (options.quick and find_lm_engine(name).compiled)
    )
    return [
        LlmMeasurement(
            _found(model),
            batch,
            length,
            tuple(dict.fromkeys(options.schemes or PEERS)),
            engines,
            options.threads,
            QUICK_ROUNDS if options.quick else ROUNDS,
            options.steps,
        )
        for model in options.models or (MODEL,)
        for batch in options.batches or (BATCH,)
        for length in options.lengths or LENGTHS
    ]


def check_llm(models: Sequence[str], schemes: Sequence[str], engines: Sequence[str]) -> None:
    """Raise an error for a model, scheme or engine that the suite does not have."""
    check_decoders([_found(model) for model in models])
    _check("scheme", [name for name in schemes if not BLOCKS.match(name)], tuple(PEERS))
    _check("engine", engines, ENGINES)


def _found(model: str) -> str:
    """Return a known name as it is, a folder's path from where the user is."""
    return model if model in KNOWN else str(from_user(model))


def _check(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FarmError(f"the suite llm has no {what} {unknown[0]!r}; use {', '.join(known)}")
