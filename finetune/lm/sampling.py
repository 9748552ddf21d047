"""Generate answers with the training program, by its cache of keys and values.

A program without one takes a forward pass of whole rows per token; the label of a row marks the
token to predict (next_token.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf

import numpy as np

from pockengine.backends.generation import Generation
from pockengine.backends.session import Session
from pockengine.compiler.generation import DECODE
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.packing import LABELS
from pockengine.finetune.task import IGNORED


@dataclass(frozen=True)
class Sampling:
    """Maximum tokens of an answer, and the choice of tokens, as Generation has it."""

    tokens: int = 48
    temperature: float = 0.0
    seed: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < inf:
            raise FinetuneError(f"the temperature is {self.temperature:g}; give 0 or more")
        if not 0 < self.top_p <= 1:
            raise FinetuneError(f"top_p is {self.top_p:g}; give a number above 0, and at most 1")


def complete(
    session: Session, questions: Sequence[Sequence[int]], how: Sampling, ends: Sequence[int]
) -> list[list[int]]:
    """Return the model's answer to each question, without the token of `ends`.

    Questions that leave no room in the program's rows are truncated to their last tokens.
    """
    if DECODE in session.artifact.entries:
        return _generated(session, questions, how, ends)
    spec = session.artifact.entries["predict"]
    batch, length = spec.inputs["input_ids"].shape
    if how.tokens < 1 or how.tokens >= length:
        raise FinetuneError(f"an answer of {how.tokens} tokens does not fit into rows of {length}")
    answers: list[list[int]] = []
    for at in range(0, len(questions), batch):
        rows = [list(ids[how.tokens - length :]) for ids in questions[at : at + batch]]
        answers += _answers(session, rows, how, ends)
    return answers


def _generated(
    session: Session, questions: Sequence[Sequence[int]], how: Sampling, ends: Sequence[int]
) -> list[list[int]]:
    """Answer the questions one after the other, each with its own seed.

    The tokens that a question begins with like the one before it are in the cache.
    """
    length = session.positions
    if how.tokens < 1 or how.tokens >= length:
        raise FinetuneError(
            f"an answer of {how.tokens} tokens does not fit into {length} positions"
        )
    answers: list[list[int]] = []
    before: list[int] = []
    for number, ids in enumerate(questions):
        prompt = list(ids[how.tokens - length :])
        seed = how.seed + number
        wish = Generation(how.tokens, how.temperature, how.top_p, seed=seed, ends=tuple(ends))
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(before, prompt, strict=False))
        cached = min(len(list(alike)), len(prompt) - 1)
        answers.append(session.generate(prompt, wish, cached=cached))
        before = prompt
    return answers


def _answers(
    session: Session, rows: list[list[int]], how: Sampling, ends: Sequence[int]
) -> list[list[int]]:
    """Extend a batch of rows token by token."""
    read = session.artifact.entries["predict"].inputs
    batch, length = read["input_ids"].shape
    starts = [len(row) for row in rows]
    ids = np.zeros((batch, length), np.int64)
    for place, row in zip(ids, rows, strict=False):
        place[: len(row)] = row
    positions = np.broadcast_to(np.arange(length), ids.shape).astype(np.int64)
    random = np.random.default_rng(how.seed)
    others = {name: np.zeros(type_.shape, type_.dtype.numpy) for name, type_ in read.items()}
    inputs = {**others, "input_ids": ids, "position_ids": positions}
    going = set(range(len(rows)))
    for _ in range(how.tokens):
        labels = np.full((batch, length), IGNORED, np.int64)
        for number in going:
            labels[number, len(rows[number])] = 0
        scores = session.predict({**inputs, LABELS: labels})["logits"]
        for number in sorted(going):
            row = rows[number]
            token = _drawn(scores[number], how, random)
            if token in ends:
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
    order = np.argsort(-weights, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    nucleus = order[: np.searchsorted(share, how.top_p) + 1]
    return int(random.choice(nucleus, p=weights[nucleus] / weights[nucleus].sum()))
