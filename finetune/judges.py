"""Metrics that judge a trial, and their names.

    accuracy         the fraction of correctly classified examples
    held-out loss    the mean loss per counted token, for models that return their own loss

Higher scores are better: an accuracy, or a negated loss. A hundredth of a difference is a point of
accuracy, or a hundredth of loss.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pockengine.errors import FinetuneError

_LARGEST = 700.0
"""Largest loss whose exponential fits in f64."""


@dataclass(frozen=True)
class Judge:
    """A judge: its name, the unit of a hundredth of a gain, and the format of scores.

    A table of trials stores the score under `key`, multiplied by `sign`; it is displayed multiplied
    by `shown`, with `digits` decimals.
    """

    name: str
    unit: str
    heading: str
    key: str
    sign: int
    shown: int
    digits: int

    def cell(self, score: float) -> str:
        """Format a score without its unit."""
        return f"{self.shown * score:.{self.digits}f}"

    def spread(self, spread: float) -> str:
        """Format a difference of scores, as `cell` does."""
        return self.cell(math.copysign(spread, self.shown))

    def described(self, score: float) -> str:
        """Format a score for a sentence."""
        if self.sign > 0:
            return f"{self.cell(score)} %"
        return f"a loss of {self.cell(score)} (perplexity {perplexity_of(-score):.4g})"

    def written(self, score: float) -> dict[str, float | None]:
        """Return a score as a table stores it; JSON has no infinities."""
        return {self.key: self.sign * score if math.isfinite(score) else None}

    def read(self, row: Mapping[str, Any]) -> float:
        """Read the score of a table's row; ValueError if it is invalid."""
        if row[self.key] is None and self.sign < 0:
            return -math.inf
        value = float(row[self.key])
        if not 0 <= value <= (1 if self.sign > 0 else math.inf) or math.isinf(value):
            raise ValueError(f"{self.key} {value} is out of its range")
        return self.sign * value


ACCURACY = Judge("accuracy", "points", "accuracy, %", key="accuracy", sign=1, shown=100, digits=2)
HELD_OUT = Judge(
    "held-out loss",
    "hundredths of held-out loss",
    "held-out loss",
    key="held_out_loss",
    sign=-1,
    shown=-1,
    digits=4,
)
JUDGES = {judge.name: judge for judge in (ACCURACY, HELD_OUT)}


def judge_named(name: str) -> Judge:
    """Return a judge; FinetuneError lists the available ones."""
    if name not in JUDGES:
        raise FinetuneError(f"unknown judge {name!r}; known: {', '.join(JUDGES)}")
    return JUDGES[name]


def perplexity_of(loss: float) -> float:
    """Return the perplexity of a loss."""
    return math.exp(min(loss, _LARGEST))
