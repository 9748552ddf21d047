"""The score of a trained session on held-out examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.session import Session
from pockengine.backends.training.data import open_data
from pockengine.backends.training.judging import predict
from pockengine.backends.training.signature import signature_of
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import FinetuneError
from pockengine.finetune.judges import ACCURACY, HELD_OUT
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import IGNORED, Examples

PARTS = 5
"""Parts of the evaluation examples that are scored separately, to estimate their noise.
"""


@dataclass(frozen=True)
class Verdict:
    """A score, the score of each part, and whether all computed values are finite."""

    score: float
    parts: tuple[float, ...]
    sound: bool


def judge(session: Session, subject: Subject, examples: Examples) -> Verdict:
    """Evaluate a session by its subject's judge."""
    return _WAYS[subject.judge](session, subject, examples)


def logits_of(session: Session, examples: Examples, logits: str) -> np.ndarray:
    """Return the logits [N, classes] of all examples."""
    signature = signature_of(session.artifact)
    return predict(session, signature, open_data(signature, examples.inputs, "predict"))[logits]


def mean_loss(
    session: Session, arrays: Mapping[str, np.ndarray], labels: str, batch: int
) -> tuple[float, int]:
    """Return the mean loss per counted token by the entry `evaluate`, and the number of these.

    `labels` names the array [N, L] of tokens, or IGNORED; the first token of a row does not count.
    A short last batch is padded with ignored tokens. FinetuneError if no token counts.
    """
    read = session.artifact.entries["evaluate"].inputs
    counted = (arrays[labels][:, 1:] != IGNORED).sum(axis=1)
    if not counted.sum():
        raise FinetuneError("there is no token to judge; give examples with answers")
    total, rows = 0.0, len(counted)
    for at in range(0, rows, batch):
        tokens = int(counted[at : at + batch].sum())
        if tokens:
            parts = {name: a[at : at + batch] for name, a in arrays.items() if name in read}
            inputs = {name: _filled(part, batch) for name, part in parts.items()}
            inputs[labels][rows - at :] = IGNORED
            total += float(session.evaluate(inputs)[LOSS]) * tokens
    return total / int(counted.sum()), int(counted.sum())


def _filled(rows: np.ndarray, batch: int) -> np.ndarray:
    missing = batch - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])


def _by_accuracy(session: Session, subject: Subject, examples: Examples) -> Verdict:
    """Count correct answers; NaN logits are wrong answers."""
    logits = logits_of(session, examples, subject.logits)
    sound = np.isfinite(logits).all(axis=1)
    right = sound & (logits.argmax(axis=1) == examples.labels)
    parts = tuple(float(right[first::PARTS].mean()) for first in range(min(PARTS, len(right))))
    return Verdict(float(right.mean()), parts, bool(sound.all()))


def _by_loss(session: Session, subject: Subject, examples: Examples) -> Verdict:
    """Score each part by its counted tokens; a part without any is omitted."""
    losses, tokens = [], []
    for first in range(min(PARTS, len(examples))):
        part = examples.take(np.arange(first, len(examples), PARTS))
        if (part.labels[:, 1:] != IGNORED).any():
            arrays = {**part.inputs, subject.target: part.labels}
            loss, count = mean_loss(session, arrays, subject.target, subject.batch)
            losses.append(loss)
            tokens.append(count)
    if not tokens:
        raise FinetuneError("there is no token to judge; give examples with answers")
    if not np.isfinite(losses).all():
        return Verdict(-np.inf, (), sound=False)
    score = -float(np.average(losses, weights=tokens))
    return Verdict(score, tuple(-loss for loss in losses), sound=True)


_WAYS: Mapping[str, Callable[[Session, Subject, Examples], Verdict]] = {
    ACCURACY.name: _by_accuracy,
    HELD_OUT.name: _by_loss,
}
