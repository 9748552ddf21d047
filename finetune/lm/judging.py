"""The loss of texts over the tokens that count, and its perplexity."""

import math
from dataclasses import dataclass

import numpy as np

from pockengine.backends.session import Session
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.packing import Packed
from pockengine.finetune.lm.tokens import IGNORED

_LARGEST = 700.0
"""A loss whose exponential f64 still holds."""


@dataclass(frozen=True)
class Judgement:
    """The mean loss of a token, over `tokens` of them."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """Among how many tokens the model is as uncertain as one that guesses."""
        return math.exp(min(self.loss, _LARGEST))


def judge(session: Session, packed: Packed, batch: int) -> Judgement:
    """Judge all rows by the entry `evaluate`; a short last batch is filled with what counts not."""
    counted = packed.counted
    if not counted.sum():
        raise FinetuneError("there is no token to judge; give examples with answers")
    total = 0.0
    for at in range(0, packed.rows, batch):
        tokens = int(counted[at : at + batch].sum())
        if tokens:
            inputs = {name: _filled(a[at : at + batch], batch) for name, a in packed.arrays.items()}
            inputs["labels"][packed.rows - at :] = IGNORED
            total += float(session.evaluate(inputs)["loss"]) * tokens
    return Judgement(total / int(counted.sum()), int(counted.sum()))


def _filled(rows: np.ndarray, batch: int) -> np.ndarray:
    missing = batch - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])
