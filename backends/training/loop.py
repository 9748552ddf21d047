"""The training loop, from the session's present state.

It trains, counts and detects a non-finite loss. Its caller does the rest: reports, evaluation,
saving. A step is complete when it is yielded.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pockengine.backends.session import Session
from pockengine.backends.training.batch import Batch
from pockengine.boundary import theirs
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import RuntimeFailure, TrainingDiverged

Rates = Callable[[int], float]
"""The rate of each weight update; updates count from 1."""


@dataclass(frozen=True)
class Step:
    """A completed training step on `rows` rows. Steps and epochs count from 1."""

    number: int
    epoch: int
    loss: float
    rate: float
    rows: int
    ends_epoch: bool


def train(
    session: Session, batches: Iterable[Batch], rates: Rates, seed: int, until: int | None = None
) -> Iterator[Step]:
    """Train on all batches, or to step `until`; yield each step once complete.

    Every group of micro-batches ends with an update. TrainingDiverged after a step with a
    non-finite loss.
    """
    if until is not None and session.steps >= until:
        return
    for batch in batches:
        rate = _rate(rates, session.updates + 1)
        outputs = session.train_step(batch.inputs, rate, seed)
        loss = _loss(session, outputs)
        yield Step(
            session.steps, batch.epoch + 1, loss, rate=rate, rows=batch.rows, ends_epoch=batch.last
        )
        if until is not None and session.steps >= until:
            return


def _rate(rates: Rates, update: int) -> float:
    found = theirs(rates, update)
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        raise RuntimeFailure(
            f"the learning rate of update {update} is {found!r}; return a number"
        ) from error


def _loss(session: Session, outputs: dict[str, np.ndarray]) -> float:
    """Return the loss of the session's last step."""
    if LOSS not in outputs:
        raise RuntimeFailure(
            f"{session.artifact.name} gives no output {LOSS!r}, only {', '.join(outputs)}; make "
            "its steps by session.train_step"
        )
    loss = float(outputs[LOSS])
    if not np.isfinite(loss):
        raise TrainingDiverged(
            f"the loss of step {session.steps} is not finite ({loss}); take a lower rate, or look "
            "at this batch"
        )
    return loss
