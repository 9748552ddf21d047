"""Accuracy, memory and step time of MiniLM with frozen weights in 8 or 4 bits, compared with f32.

    bazel run //studies/frozen -- --data DIR --json FILE

Blocks of 32 weights share a scale, as in GGUF's Q8_0 and Q4_0. For each data set and scheme, the
rate is chosen with f32 on validation rows with the first seed. All storage formats train at that
rate with the same seeds, rows and order. The head is new. Records are appended after each format.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from pockengine import AdamW, Storage, __version__, compile
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.program import Program
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.finetune.task import TARGET, Task
from pockengine.studies.course import (
    Course,
    accuracies,
    accuracy_record,
    append_records,
    bytes_of,
    setup_of,
)
from pockengine.studies.frozen.steps import cpu_times
from pockengine.studies.sparse.sizes import Sizes
from pockengine.studies.sparse.subjects import MODELS, StudyFolders, graph_and_task
from pockengine.studies.turns import Spread

MODEL = "minilm-l6"
BATCH = 16
WEIGHTS = ("f32", "int8", "int4")
RATES = (4e-4, 1.6e-3)


@dataclass(frozen=True)
class CompiledWeights:
    """A program with frozen weights in one of WEIGHTS, and its training memory besides the arena.

    `weights_bytes` are those of all weights, `states_bytes` the optimizer's; `step` is CPU time in
    ms.
    """

    weights: str
    artifact: Path
    arena_bytes: int
    weights_bytes: int
    states_bytes: int
    step: Spread


def compile_each(graph: Graph, scheme: str, task: Task, folder: Path) -> list[CompiledWeights]:
    """Compile every storage format into the folder, and time their steps in turns."""
    programs: dict[str, Program] = {}
    for weights in WEIGHTS:
        programs[weights] = compile(
            graph,
            None,
            scheme=scheme,
            optimizer=AdamW(weight_decay=0.0),
            storage=Storage(weights=weights),
            folder=folder / weights,
        ).program
    steps = cpu_times([folder / weights for weights in WEIGHTS], _first_batch(task))
    return [
        CompiledWeights(weights, folder / weights, program.arena_bytes, *bytes_of(program), step)
        for (weights, program), step in zip(programs.items(), steps, strict=True)
    ]


def _first_batch(task: Task) -> Mapping[str, np.ndarray]:
    first = task.tuning.train.take(np.arange(BATCH))
    return {**first.inputs, TARGET: first.labels}


def records_of(
    setup: Setup,
    compiled_weights: CompiledWeights,
    course: Course,
    found: tuple[float, tuple[float, ...]],
    sizes: Sizes,
) -> list[Record]:
    """Return a format's figures as records, whose dtype is that of its frozen weights."""
    record = replace(setup, dtype=compiled_weights.weights).record
    named = EngineRun("pockengine", __version__, course.scheme)
    step, times = (
        compiled_weights.step,
        (compiled_weights.step.low, compiled_weights.step.high, compiled_weights.step.n),
    )
    return [
        accuracy_record(setup, course, sizes, found, dtype=compiled_weights.weights),
        record(named, "step_ms", step.median, spread=times, note="CPU time of one thread"),
        record(named, "arena_bytes", compiled_weights.arena_bytes),
        record(named, "weights_bytes", compiled_weights.weights_bytes),
        record(named, "states_bytes", compiled_weights.states_bytes),
    ]


def study(
    places: StudyFolders, dataset: str, course: Course, sizes: Sizes
) -> Iterator[list[Record]]:
    """Yield the records of each storage format, f32 first, when its trainings end."""
    graph, task = graph_and_task(MODELS[MODEL], dataset, places, sizes, BATCH)
    setup = setup_of(MODEL, dataset, BATCH, course)
    rates: tuple[float, ...] = RATES
    with tempfile.TemporaryDirectory(prefix="pockengine-study-") as folder:
        for compiled_weights in compile_each(graph, course.scheme, task, Path(folder)):
            found = accuracies(compiled_weights.artifact, rates, task, course)
            rates = (found[0],)
            yield records_of(setup, compiled_weights, course, found, sizes)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), envvar="POCKENGINE_DATA", required=True)
@click.option("--dataset", "datasets", multiple=True, default=("sst2", "clinc150"))
@click.option("--scheme", "schemes", multiple=True, default=("lora-16", "sparse"), help="Presets.")
@click.option("--train", default=1000, show_default=True, help="Rows; a fifth more validates.")
@click.option("--test", default=800, show_default=True, help="Rows.")
@click.option("--epochs", default=2, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append records here.")
def main(
    data: Path,
    datasets: Sequence[str],
    schemes: Sequence[str],
    train: int,
    test: int,
    epochs: int,
    threads: int,
    json_file: Path | None,
) -> None:
    """Train MiniLM over frozen weights in f32, 8 and 4 bits, and print the accuracy of each."""
    places, sizes = StudyFolders(data, None, data), Sizes(train, train // 5, test)
    for scheme in schemes:
        for dataset in datasets:
            for records in study(places, dataset, Course(scheme, epochs, threads), sizes):
                for record in records:
                    click.echo(
                        f"{dataset} {scheme} {record.dtype} {record.metric} {record.value:g}"
                    )
                if json_file is not None:
                    append_records(records, json_file)


if __name__ == "__main__":
    main()
