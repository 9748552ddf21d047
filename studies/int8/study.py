"""Accuracy of int8 training compared with f32: same net, scheme, rows, order and optimizer.

    bazel run //studies/int8 -- --data DIR --json FILE

Each variant tries its rates with the first seed on validation rows, and trains at the best one with
three seeds; only then are the test rows used. Weights are pretrained, the head is new.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from pockengine import Sgd, compile
from pockengine.compiler.ir.graph import Graph
from pockengine.finetune.task import Task
from pockengine.studies.course import Course, accuracies, accuracy_record, append_records, setup_of
from pockengine.studies.int8.variants import VARIANTS, Variant
from pockengine.studies.sparse.sizes import Sizes
from pockengine.studies.sparse.subjects import MODELS, StudyFolders, graph_and_task
from pockengine.terminal import PlainConsole

BATCH = 16
CALIBRATION = 128
"""Rows for calibration."""

OPTIMIZER = Sgd(momentum=0.9)


@dataclass(frozen=True)
class Outcome:
    """Test accuracies of one variant, one per seed, at the rate chosen on validation."""

    variant: str
    rate: float
    accuracies: tuple[float, ...]
    arena_bytes: int

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.accuracies))


def outcome_of(variant: Variant, graph: Graph, task: Task, course: Course) -> Outcome:
    """Compile a variant, choose its rate, train it with every seed and evaluate it."""
    train = task.tuning.train
    samples = {name: array[:CALIBRATION] for name, array in train.inputs.items()}
    with tempfile.TemporaryDirectory(prefix="pockengine-study-") as temporary:
        folder = Path(temporary) / "artifact"
        compiled = compile(
            variant.graph(graph),
            None,
            scheme=course.scheme,
            optimizer=OPTIMIZER,
            quantize=variant.quantize(samples),
            folder=folder,
        )
        found = accuracies(folder, variant.rates, task, course)
        return Outcome(variant.name, *found, compiled.program.arena_bytes)


def pairs(models: Sequence[str], datasets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return each model with each data set."""
    return ((model, dataset) for model in models for dataset in datasets)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="POCKENGINE_DATA", required=True)
@click.option("--model", "models", multiple=True, default=("resnet20", "mbv2-w0.35"))
@click.option("--dataset", "datasets", multiple=True, default=("fashion_mnist", "cifar10"))
@click.option("--size", default=64, show_default=True, help="Pixels; 32 for ResNets.")
@click.option("--train", default=2000, show_default=True, help="Rows; a fifth more validates.")
@click.option("--test", default=2000, show_default=True, help="Rows.")
@click.option("--scheme", default="sparse", show_default=True, help="A preset.")
@click.option("--epochs", default=3, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
def main(
    data: Path,
    models: Sequence[str],
    datasets: Sequence[str],
    size: int,
    train: int,
    test: int,
    scheme: str,
    epochs: int,
    threads: int,
    json_file: Path | None,
) -> None:
    """Train small nets in f32 and in int8, and print the accuracy of each variant."""
    places = StudyFolders(data, None, data)
    course, sizes = Course(scheme, epochs, threads), Sizes(train, train // 5, test)
    for name, dataset in pairs(models, datasets):
        known = MODELS[name]
        model = known if name.startswith("resnet") else replace(known, size=size)
        graph, task = graph_and_task(model, dataset, places, sizes, BATCH)
        title = f"{name}-{model.size}, {dataset}, {scheme}: {train} rows, {epochs} epochs"
        table = Table(title=title, title_justify="left")
        for heading in ("variant", "rate", "test accuracy, %", "of each seed", "arena, bytes"):
            table.add_column(heading)
        for variant in VARIANTS:
            outcome = outcome_of(variant, graph, task, course)
            table.add_row(*_row(outcome))
            if json_file is not None:
                record = accuracy_record(
                    setup_of(f"{name}-{model.size}", dataset, BATCH, course),
                    course,
                    sizes,
                    (outcome.rate, outcome.accuracies),
                    dtype="f32" if outcome.variant == "f32" else "int8",
                    name=outcome.variant,
                )
                append_records([record], json_file)
        PlainConsole(120).print(table)


def _row(outcome: Outcome) -> list[str]:
    each = ", ".join(f"{100 * value:.1f}" for value in outcome.accuracies)
    rate, mean = f"{outcome.rate:g}", f"{100 * outcome.mean:.1f}"
    return [outcome.variant, rate, mean, each, f"{outcome.arena_bytes:,}"]


if __name__ == "__main__":
    main()
