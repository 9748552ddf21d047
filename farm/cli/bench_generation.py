"""Run `--suite=generation`: choose models and prompts, and store the figures."""

from pockengine.farm.bench.generation import (
    GenerationMeasurement,
    GenerationResult,
    measure_generation,
)
from pockengine.farm.bench.generation_table import generation_records, generation_table
from pockengine.farm.cli.bench_llm import model_path
from pockengine.farm.cli.suites import Choice, Suite
from pockengine.farm.references.engines import STORAGES

MODEL, LENGTHS, ANSWER = "llama-110m", (128, 512), 64
ROUNDS, QUICK_ROUNDS = 7, 3
WIDTH = 100


def generation_suite(choice: Choice) -> Suite[GenerationMeasurement, GenerationResult]:
    """Return prompts and answers of decoders as a suite."""
    return Suite(
        generation_plan(choice),
        measure_generation,
        records=lambda found: generation_records(found, choice.threads),
        show=lambda found: [generation_table(found, choice.threads)],
        width=WIDTH,
    )


def generation_plan(choice: Choice) -> list[GenerationMeasurement]:
    """Return the measurements, in order."""
    return [
        GenerationMeasurement(
            model_path(model),
            length,
            ANSWER,
            threads=choice.threads,
            rounds=QUICK_ROUNDS if choice.quick else ROUNDS,
            storage=storage,
        )
        for model in choice.models or (MODEL,)
        for length in choice.lengths or LENGTHS
        for storage in choice.storages or STORAGES[:1]
    ]
