"""Generate answers with the training program: one forward pass of whole rows per token."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.backends.session import Session
from pockengine.errors import FinetuneError


@dataclass(frozen=True)
class Sampling:
    """Maximum tokens of an answer, and the sampling temperature: 0 is greedy."""

    tokens: int = 48
    temperature: float = 0.0
    seed: int = 0


def complete(
    session: Session, questions: Sequence[Sequence[int]], how: Sampling, end: int | None
) -> list[list[int]]:
    """Return the model's answer to each question, without the end token.

    Questions that leave no room in the program's rows are truncated to their last tokens.
    """
    spec = session.artifact.entries["predict"]
    batch, length = spec.inputs["input_ids"].shape
    if how.tokens < 1 or how.tokens >= length:
        raise FinetuneError(f"an answer of {how.tokens} tokens does not fit into rows of {length}")
    answers: list[list[int]] = []
    for at in range(0, len(questions), batch):
        rows = [list(ids[how.tokens - length :]) for ids in questions[at : at + batch]]
        answers += _answers(session, rows, how, end)
    return answers


def _answers(
    session: Session, rows: list[list[int]], how: Sampling, end: int | None
) -> list[list[int]]:
    """Extend a batch of rows token by token."""
    batch, length = session.artifact.entries["predict"].inputs["input_ids"].shape
    starts = [len(row) for row in rows]
    ids = np.zeros((batch, length), np.int64)
    for place, row in zip(ids, rows, strict=False):
        place[: len(row)] = row
    positions = np.broadcast_to(np.arange(length), ids.shape).astype(np.int64)
    random = np.random.default_rng(how.seed)
    going = set(range(len(rows)))
    for _ in range(how.tokens):
        scores = session.predict({"input_ids": ids, "position_ids": positions})["logits"]
        for number in sorted(going):
            row = rows[number]
            token = _drawn(scores[number, len(row) - 1], how, random)
            if token == end:
                going.discard(number)
                continue
            ids[number, len(row)] = token
            row.append(token)
        if not going:
            break
    return [row[start:] for row, start in zip(rows, starts, strict=True)]


def _drawn(scores: np.ndarray, how: Sampling, random: np.random.Generator) -> int:
    if how.temperature <= 0:
        return int(scores.argmax())
    scaled = scores.astype(np.float64) / how.temperature
    weights = np.exp(scaled - scaled.max())
    return int(random.choice(len(weights), p=weights / weights.sum()))
