"""One real fine-tuning in compiled C on this machine: train a scheme and evaluate it.

The compiled artifact depends only on graph, scheme and optimizer, which are its key in the folder's
cache: another seed, rate or data set needs no compilation. Each trial uses one thread; several run
at once in processes (executor.py).
"""

import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pockengine import __version__
from pockengine.api import compile
from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.backends.training.batch import Batch
from pockengine.backends.training.loop import train
from pockengine.compiler.controls import RATE, SEED, STEP
from pockengine.compiler.ir.scalars import widens
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError, TrainingDiverged
from pockengine.files import place_once
from pockengine.finetune.judges import HELD_OUT
from pockengine.finetune.recipe import Recipe, batches
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import IGNORED, TARGET, Examples
from pockengine.finetune.trial_channels import settle_channels
from pockengine.finetune.verdict import judge

DEVICE = "host"

_ARTIFACT = "artifact"
_SOURCES = ("compiler", "backends", "devices")
"""Folders of this package whose files determine an artifact."""


@dataclass(frozen=True)
class TrialOutcome:
    """Result of a trial.

    `score` is the judge's score on the evaluation examples (judges.py); higher is better. `loss` is
    the mean training loss of the last epoch, NaN if it diverged. `seconds` is the time of training
    and evaluation without compilation. A `diverged` trial stopped at its first non-finite loss, or
    had a non-finite evaluation; its accuracy is as measured, its held-out loss infinite. `parts`
    are the scores of every PARTS-th example, one for each offset; empty if they were not computed.
    """

    score: float
    loss: float
    steps: int
    seconds: float
    diverged: bool
    parts: tuple[float, ...] = ()


def run_trial(
    subject: Subject,
    scheme: Scheme,
    recipe: Recipe,
    training: Examples,
    judged: Examples,
    folder: Path | None = None,
) -> TrialOutcome:
    """Fine-tune with a scheme, then evaluate on held-out examples.

    Data-driven shares of channels are chosen from the training examples. `folder` caches compiled
    artifacts between trials. The same arguments give the same outcome bit for bit, except
    `seconds`. Raises FinetuneError for data that do not fit the graph.
    """
    check_examples(subject, training, judged)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="pockengine-") as place:
            return run_trial(
                subject, scheme, recipe, training=training, judged=judged, folder=Path(place)
            )
    scheme = settle_channels(subject, scheme, training, folder)
    artifact = compiled(subject, scheme, recipe.optimizer, folder)
    with open_session(artifact, threads=1) as session:
        start = time.perf_counter()
        losses = train_examples(
            session, recipe, training, batch=subject.batch, target=subject.target
        )
        verdict, steps = judge(session, subject, judged), session.steps
        seconds = time.perf_counter() - start
    diverged = not (np.isfinite(losses).all() and verdict.sound)
    loss = float("nan") if diverged else float(np.mean(losses, dtype=np.float64))
    return TrialOutcome(
        verdict.score, loss, steps, seconds=seconds, diverged=diverged, parts=verdict.parts
    )


def compiled(subject: Subject, scheme: Scheme, optimizer: Optimizer, folder: Path) -> Artifact:
    """Return a scheme's artifact, from the cache folder if present; one process compiles it."""

    def make(place: Path) -> None:
        compile(
            subject.graph,
            (),
            optimizer=optimizer,
            scheme=scheme,
            device=DEVICE,
            quantize=subject.quantize,
            folder=place / _ARTIFACT,
        )

    place = place_once(artifact_place(subject, scheme, optimizer, folder), make)
    return load_artifact(place / _ARTIFACT)


def artifact_place(subject: Subject, scheme: Scheme, optimizer: Optimizer, folder: Path) -> Path:
    """Return the cache path of a scheme's artifact, derived from everything that determines it."""
    choices = repr((scheme.rules, scheme.default))
    parts = (_sources_digest(), subject.digest(), choices, repr(optimizer))
    return folder / "artifacts" / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def train_examples(
    session: Session, recipe: Recipe, examples: Examples, batch: int, target: str = TARGET
) -> list[float]:
    """Train all epochs; return the last epoch's losses, followed by NaN if it diverged.

    `target` is the name of the labels in the program.
    """
    rates = recipe.rates(recipe.epochs * -(-len(examples) // batch))
    losses: list[float] = []
    try:
        for step in train(
            session, _batches_of_all(recipe, examples, batch, target), rates, recipe.seed
        ):
            losses.append(step.loss)
            if step.ends_epoch and step.epoch < recipe.epochs:
                losses.clear()
    except TrainingDiverged:
        losses.append(float("nan"))
    return losses


def _batches_of_all(recipe: Recipe, examples: Examples, batch: int, target: str) -> Iterator[Batch]:
    """Yield the batches of all epochs in the recipe's order."""
    for epoch in range(recipe.epochs):
        steps = batches(len(examples), batch, epoch, recipe.seed)
        for number, rows in enumerate(steps, start=1):
            inputs = {name: array[rows] for name, array in examples.inputs.items()}
            inputs[target] = examples.labels[rows]
            yield Batch(inputs, batch, epoch, last=number == len(steps))


def check_examples(subject: Subject, *parts: Examples) -> None:
    """Raise FinetuneError unless the inputs and labels match the subject's."""
    for examples in parts:
        _check_inputs(subject, examples)
        _check_labels(subject, examples)


def _check_inputs(subject: Subject, examples: Examples) -> None:
    controls = {subject.target, RATE, STEP, SEED}
    reads = {v.name: v.type for v in subject.graph.inputs if v.name not in controls}
    known = ", ".join(reads)
    if unknown := sorted(set(examples.inputs) - set(reads)):
        raise FinetuneError(
            f"the data have {', '.join(unknown)}, which {subject.name} does not read; its inputs "
            f"are {known}: rename or drop them"
        )
    if missing := [name for name in reads if name not in examples.inputs]:
        raise FinetuneError(
            f"the data have no {', '.join(missing)}; {subject.name} reads {known} and "
            f"{subject.target}"
        )
    for name, type_ in reads.items():
        found, dtype = examples.inputs[name], type_.dtype.numpy
        if type_.shape and found.shape[1:] != type_.shape[1:]:
            raise FinetuneError(
                f"{subject.name} reads {name} as rows {list(type_.shape[1:])}; the data have "
                f"{list(found.shape[1:])}"
            )
        if found.dtype != dtype and not widens(found.dtype, type_.dtype):
            raise FinetuneError(
                f"{subject.name} reads {name} as {dtype}; the data have {found.dtype}: convert "
                f"them by {name}.astype(numpy.{dtype})"
            )


def _check_labels(subject: Subject, examples: Examples) -> None:
    shape, labels = subject.graph.input(subject.target).shape[1:], examples.labels
    if labels.shape[1:] != shape:
        raise FinetuneError(
            f"{subject.name} reads labels {[subject.batch, *shape]}; the data have "
            f"{list(labels.shape)}"
        )
    counted = labels[labels != IGNORED] if subject.judge == HELD_OUT.name else labels
    low, high = (int(counted.min()), int(counted.max())) if counted.size else (0, 0)
    if low < 0 or high >= subject.classes:
        raise FinetuneError(
            f"{subject.name} tells {subject.classes} labels apart, from 0; the data have "
            f"labels from {low} to {high}"
        )


@cache
def _sources_digest() -> str:
    """Digest of the code that makes artifacts: other code makes other artifacts."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256(__version__.encode())
    for name in _SOURCES:
        for path in sorted((root / name).rglob("*")):
            if path.suffix in {".py", ".c", ".h", ".toml"}:
                whole.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return whole.hexdigest()
