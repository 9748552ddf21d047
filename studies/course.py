"""Trainings of a study: a rate chosen on validation rows, then test accuracies of all seeds."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pockengine import __version__, load
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.program import Program
from pockengine.errors import TrainingDiverged
from pockengine.farm.results.results import Record, write_lines
from pockengine.farm.results.setup import EngineRun, Setup
from pockengine.finetune.task import Examples, Task
from pockengine.studies.sparse.sizes import Sizes

SEEDS = (0, 1, 2)
METRIC = "accuracy"


@dataclass(frozen=True)
class Course:
    """The scheme, length and number of threads of each training."""

    scheme: str
    epochs: int
    threads: int


def accuracies(
    artifact: Path, rates: Sequence[float], task: Task, course: Course
) -> tuple[float, tuple[float, ...]]:
    """Return the best of `rates` with the first seed, and the test accuracies of all seeds."""

    def trained(rate: float, seed: int, judged: Examples) -> float:
        return _accuracy(artifact, (rate, seed), (task.tuning.train, judged), course)

    rate = rates[0]
    if len(rates) > 1:
        rate = max(rates, key=lambda tried: trained(tried, SEEDS[0], task.tuning.validation))
    return rate, tuple(trained(rate, seed, task.test) for seed in SEEDS)


def _accuracy(
    artifact: Path, how: tuple[float, int], rows: tuple[Examples, Examples], course: Course
) -> float:
    """Train from the initial weights, and evaluate; a diverged training scores 0."""
    (rate, seed), (train, judged) = how, rows
    loaded = load(artifact)
    try:
        loaded.fit(
            _data(train),
            epochs=course.epochs,
            lr=rate,
            schedule="cosine",
            seed=seed,
            threads=course.threads,
            progress=False,
        )
    except TrainingDiverged:
        return 0.0
    scores = loaded.evaluate(_data(judged), metrics={METRIC: accuracy}, threads=course.threads)
    return float(scores.metrics[METRIC])


def accuracy(prediction: np.ndarray, target: np.ndarray) -> float:
    """Return the fraction of rows whose largest logit is at their label."""
    return float(np.mean(np.argmax(prediction, axis=-1) == target))


def _data(examples: Examples) -> dict[str, np.ndarray]:
    return {**examples.inputs, "target": examples.labels}


def setup_of(model: str, dataset: str, batch: int, course: Course) -> Setup:
    """Return the common fields of records of trainings on this machine."""
    return Setup(model, dataset, batch, course.threads)


def accuracy_record(
    setup: Setup,
    course: Course,
    sizes: Sizes,
    found: tuple[float, tuple[float, ...]],
    *,
    dtype: str = "f32",
    name: str = "",
) -> Record:
    """Return all seeds' test accuracies at a rate as a record; the note describes the training."""
    rate, values = found
    seeds = ", ".join(f"{value:.4f}" for value in values)
    note = (
        f"rate {rate:g}; {course.epochs} epochs of {sizes.train} rows; {sizes.test} test rows; "
        f"seeds {seeds}"
    )
    record = setup.record(
        EngineRun("pockengine", __version__, course.scheme),
        METRIC,
        float(np.mean(values)),
        spread=(min(values), max(values), len(values)),
        note=f"{name}; {note}" if name else note,
    )
    return replace(record, dtype=dtype)


def bytes_of(program: Program) -> tuple[int, int]:
    """Return the bytes of weights, and of the optimizer's states."""
    sizes = {True: 0, False: 0}
    for param in program.params.values():
        sizes[param.kind is ParamKind.OPTIMIZER] += param.value.type.nbytes
    return sizes[False], sizes[True]


def append_records(records: Sequence[Record], path: Path) -> None:
    """Append records to a file; a relative path is relative to the user's folder."""
    write_lines(records, Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / path)
