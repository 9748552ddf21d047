"""Accuracy of MiniLM with weights and optimizer states in fewer bits, compared with f32.

    bazel run //studies/states -- --data DIR --json FILE

All have the same rows, order, seeds and rate, which is chosen with f32 on validation rows with the
first seed. The head is new.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from pockengine import AdamW, Storage, compile
from pockengine.compiler.ir.graph import Graph
from pockengine.finetune.task import Task
from pockengine.studies.course import (
    Course,
    accuracies,
    accuracy_record,
    append_records,
    bytes_of,
    setup_of,
)
from pockengine.studies.sparse.sizes import Sizes
from pockengine.studies.sparse.subjects import MODELS, StudyFolders, graph_and_task
from pockengine.terminal import PlainConsole

MODEL = "minilm-l6"
BATCH = 16
RATES = {"lora-16": (4e-4, 1.6e-3), "full": (1e-4, 4e-4)}
STORED = {
    "full": (
        Storage(),
        Storage(states="bf16"),
        Storage(states="8bit"),
        Storage(trained="bf16"),
        Storage(trained="bf16", states="8bit"),
    ),
    "lora-16": (
        Storage(),
        Storage(states="8bit"),
        Storage(weights="int4"),
        Storage(weights="int4", states="8bit"),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """Test accuracies of one storage format, one per seed, and its bytes."""

    storage: Storage
    rate: float
    accuracies: tuple[float, ...]
    weights_bytes: int
    states_bytes: int

    @property
    def name(self) -> str:
        """Name of the storage format."""
        stored = self.storage
        forms = (
            (stored.weights, "frozen weights"),
            (stored.trained, "trained weights"),
            (stored.states, "states"),
        )
        return ", ".join(f"{form} {what}" for form, what in forms)


def outcome_of(
    storage: Storage, rate: float | None, subject: tuple[Graph, Task], course: Course
) -> Outcome:
    """Train one storage format with every seed and evaluate it; without a rate, choose it first."""
    graph, task = subject
    with tempfile.TemporaryDirectory(prefix="pockengine-study-") as temporary:
        folder = Path(temporary) / "artifact"
        optimizer = AdamW(weight_decay=0.0)
        compiled = compile(
            graph, None, scheme=course.scheme, optimizer=optimizer, storage=storage, folder=folder
        )

        rates = RATES[course.scheme] if rate is None else (rate,)
        found = accuracies(folder, rates, task, course)
        return Outcome(storage, *found, *bytes_of(compiled.program))


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="POCKENGINE_DATA", required=True)
@click.option("--dataset", default="sst2", show_default=True)
@click.option("--train", default=1000, show_default=True, help="Rows; a fifth more validates.")
@click.option("--test", default=800, show_default=True, help="Rows.")
@click.option("--scheme", type=click.Choice(list(STORED)), default="lora-16", show_default=True)
@click.option("--epochs", default=2, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
def main(
    data: Path,
    dataset: str,
    train: int,
    test: int,
    scheme: str,
    epochs: int,
    threads: int,
    json_file: Path | None,
) -> None:
    """Train MiniLM with weights and states in fewer bits, and print the accuracy of each format."""
    places = StudyFolders(data, None, data)
    course, sizes = Course(scheme, epochs, threads), Sizes(train, train // 5, test)
    subject = graph_and_task(MODELS[MODEL], dataset, places, sizes, BATCH)
    table = Table(title=f"{MODEL}, {dataset}, {scheme}: {train} rows, {epochs} epochs")
    headings = ("stored", "rate", "test accuracy, %", "of each seed", "weights", "states, bytes")
    for heading in headings:
        table.add_column(heading)
    rate = None
    for storage in STORED[scheme]:
        outcome = outcome_of(storage, rate, subject, course)
        rate = outcome.rate
        table.add_row(*_row(outcome))
        if json_file is not None:
            found = outcome.rate, outcome.accuracies
            setup = setup_of(MODEL, dataset, BATCH, course)
            record = accuracy_record(setup, course, sizes, found, name=outcome.name)
            append_records([record], json_file)
    PlainConsole(120).print(table)


def _row(outcome: Outcome) -> list[str]:
    each = ", ".join(f"{100 * value:.1f}" for value in outcome.accuracies)
    mean = f"{100 * float(np.mean(outcome.accuracies)):.1f}"
    sizes = f"{outcome.weights_bytes:,}", f"{outcome.states_bytes:,}"
    return [outcome.name, f"{outcome.rate:g}", mean, each, *sizes]


if __name__ == "__main__":
    main()
