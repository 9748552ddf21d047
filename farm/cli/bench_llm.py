"""Run `--suite=llm`: choose models, lengths, schemes and engines, and store the figures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from pockengine.errors import FarmError
from pockengine.farm.bench.llm import FORMS, PEERS, LlmMeasurement, LlmResult, measure_llm
from pockengine.farm.bench.llm_case import KNOWN
from pockengine.farm.bench.llm_table import llm_records, llm_table
from pockengine.farm.bench.schemes import check_decoders
from pockengine.farm.cli.base import from_user
from pockengine.farm.cli.suites import reasons
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record

MODEL, LENGTHS, BATCH = "llama-110m", (256, 512), 1
ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 150
ENGINES = (*FORMS, *dict.fromkeys(name for names in PEERS.values() for name in names))
BLOCKS = re.compile(r"sparse-\d+-\d+$")
"""The preset `sparse` in other blocks, measured in addition to `sparse`."""


@dataclass(frozen=True)
class LlmOptions:
    """The user's selection of the suite; empty: all. `engines` are names of records."""

    models: tuple[str, ...]
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    engines: tuple[str, ...]
    schemes: tuple[str, ...]
    threads: int
    steps: int
    quick: bool


@dataclass(frozen=True)
class LlmSuite:
    """The fine-tuning of decoders, as a suite."""

    options: LlmOptions
    width: int = WIDTH

    def plan(self) -> list[LlmMeasurement]:
        """Return the measurements."""
        return llm_plan(self.options)

    def title(self, cell: LlmMeasurement) -> str:
        """Return the model and shape."""
        return f"{cell.model}, {cell.batch} x {cell.length}"

    def measure(self, cell: LlmMeasurement, folder: Path) -> LlmResult:
        """Measure one model and shape."""
        return measure_llm(cell, folder)

    def records(self, found: LlmResult) -> list[Record]:
        """Return the figures of one model and shape."""
        return llm_records(found, current_commit(), self.options.threads)

    def show(self, found: LlmResult) -> list[RenderableType]:
        """Return the table, and why engines have no line."""
        return [llm_table(found, self.options.threads), *reasons(found.missing)]

    def finish(self, all_found: Sequence[LlmResult]) -> list[RenderableType]:
        """Return nothing."""
        return []


def llm_plan(options: LlmOptions) -> list[LlmMeasurement]:
    """Return the measurements, in order."""
    engines = options.engines or tuple(
        name for name in ENGINES if not (options.quick and find_lm_engine(name).compiled)
    )
    return [
        LlmMeasurement(
            model_path(model),
            batch,
            length,
            schemes=tuple(dict.fromkeys(options.schemes or PEERS)),
            engines=engines,
            threads=options.threads,
            rounds=QUICK_ROUNDS if options.quick else ROUNDS,
            steps=options.steps,
        )
        for model in options.models or (MODEL,)
        for batch in options.batches or (BATCH,)
        for length in options.lengths or LENGTHS
    ]


def check_llm(models: Sequence[str], schemes: Sequence[str], engines: Sequence[str]) -> None:
    """Raise an error for a model, scheme or engine that the suite does not have."""
    check_models(models)
    _check("scheme", [name for name in schemes if not BLOCKS.match(name)], tuple(PEERS))
    _check("engine", engines, ENGINES)


def check_models(models: Sequence[str]) -> None:
    """Raise ImportModelError for a name or folder that is not a decoder's."""
    check_decoders([model_path(model) for model in models])


def model_path(model: str) -> str:
    """Return a known name unchanged, and a folder's path relative to the user's folder."""
    return model if model in KNOWN else str(from_user(model))


def _check(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FarmError(f"the suite llm has no {what} {unknown[0]!r}; use {', '.join(known)}")
