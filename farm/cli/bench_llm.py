"""Run `--suite=llm`: choose models, lengths, schemes and engines, and store the figures."""

import re
from collections.abc import Sequence

from pockengine.errors import FarmError
from pockengine.farm.bench.llm import (
    FORMS,
    PEERS,
    SPARSE,
    LlmMeasurement,
    LlmResult,
    measure_llm,
)
from pockengine.farm.bench.llm_case import KNOWN
from pockengine.farm.bench.llm_table import llm_records, llm_table
from pockengine.farm.bench.schemes import check_decoders
from pockengine.farm.cli.base import from_user
from pockengine.farm.cli.suites import Choice, Suite, reasons
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.references.worker import why_missing

MODEL, LENGTHS, BATCH = "llama-110m", (256, 512), 1
ROUNDS, QUICK_ROUNDS = 5, 3
WIDTH = 150
ENGINES = (*FORMS, *dict.fromkeys(name for names in PEERS.values() for name in names))
BLOCKS = re.compile(r"sparse-\d+-\d+$")
"""The preset `sparse` in other blocks, measured in addition to `sparse`."""


def llm_suite(choice: Choice) -> Suite[LlmMeasurement, LlmResult]:
    """Return the fine-tuning of decoders as a suite."""
    return Suite(
        llm_plan(choice),
        measure_llm,
        records=lambda found: llm_records(found, choice.threads),
        show=lambda found: [llm_table(found, choice.threads), *reasons(found.missing)],
        width=WIDTH,
    )


def llm_plan(choice: Choice) -> list[LlmMeasurement]:
    """Return the measurements, in order."""
    engines = choice.engines or tuple(
        name for name in ENGINES if not (choice.quick and find_lm_engine(name).compiled)
    )
    return [
        LlmMeasurement(
            model_path(model),
            batch,
            length,
            schemes=tuple(dict.fromkeys(choice.schemes or PEERS)),
            engines=engines,
            threads=choice.threads,
            rounds=QUICK_ROUNDS if choice.quick else ROUNDS,
            steps=choice.steps,
        )
        for model in choice.models or (MODEL,)
        for batch in choice.batches or (BATCH,)
        for length in choice.lengths or LENGTHS
    ]


def check_llm(models: Sequence[str], schemes: Sequence[str], engines: Sequence[str]) -> None:
    """Raise an error for a model, scheme or engine that the suite does not have, or for a scheme
    whose reference is not installed: without it no engine of the scheme is measured.
    """
    check_models(models)
    _check("scheme", [name for name in schemes if not BLOCKS.match(name)], tuple(PEERS))
    _check("engine", engines, ENGINES)
    for scheme in schemes or PEERS:
        reference = find_lm_engine(PEERS.get(scheme, PEERS[SPARSE])[0])
        if reason := why_missing(reference):
            raise FarmError(
                f"the suite llm compares {scheme} with {reference.name}: {reason}; install it "
                "by pip, or choose others by --scheme"
            )


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
