"""Run `--suite=generation`: choose models and prompts, and store the figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from pockengine.farm.bench.generation import (
    GenerationMeasurement,
    GenerationResult,
    measure_generation,
)
from pockengine.farm.bench.generation_table import generation_records, generation_table
from pockengine.farm.cli.bench_llm import model_path
from pockengine.farm.references.engines import STORAGES
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record

MODEL, LENGTHS, ANSWER = "llama-110m", (128, 512), 64
ROUNDS, QUICK_ROUNDS = 7, 3
WIDTH = 100


@dataclass(frozen=True)
class GenerationSuite:
    """Prompts and answers of decoders, as a suite; without `models` or `lengths` the usual ones."""

    models: tuple[str, ...]
    lengths: tuple[int, ...]
    threads: int
    quick: bool
    storages: tuple[str, ...] = ()
    width: int = WIDTH

    def plan(self) -> list[GenerationMeasurement]:
        """Return the measurements, in order."""
        rounds = QUICK_ROUNDS if self.quick else ROUNDS
        return [
            GenerationMeasurement(
                model_path(model),
                length,
                ANSWER,
                threads=self.threads,
                rounds=rounds,
                storage=storage,
            )
            for model in self.models or (MODEL,)
            for length in self.lengths or LENGTHS
            for storage in self.storages or STORAGES[:1]
        ]

    def title(self, cell: GenerationMeasurement) -> str:
        """Return the model, the prompt and the weights."""
        return f"{cell.model}, {cell.prompt} tokens, {cell.storage}"

    def measure(self, cell: GenerationMeasurement, folder: Path) -> GenerationResult:
        """Measure one model and prompt."""
        return measure_generation(cell, folder)

    def records(self, found: GenerationResult) -> list[Record]:
        """Return the figures of one model and prompt."""
        return generation_records(found, current_commit(), self.threads)

    def show(self, found: GenerationResult) -> list[RenderableType]:
        """Return the table."""
        return [generation_table(found, self.threads)]

    def finish(self, all_found: Sequence[GenerationResult]) -> list[RenderableType]:
        """Return nothing."""
        return []
