"""The cost of a budget: the chosen scheme compared with full fine-tuning, which exceeds it.

The best scheme within a budget may still be worse than full fine-tuning. A search cannot show that,
because it only compares schemes that fit; full fine-tuning under the same conditions can.
"""

from dataclasses import dataclass
from math import sqrt

from pockengine.finetune.judges import ACCURACY, Judge
from pockengine.finetune.race import Standing

SIGNIFICANT = 2.0
"""Minimum number of standard errors of a significant difference of means."""


@dataclass(frozen=True)
class Shortfall:
    """Scores of the chosen scheme and of full fine-tuning, and the bytes of the latter."""

    chosen: Standing
    full: Standing
    full_bytes: int
    judge: Judge = ACCURACY

    @property
    def lost(self) -> float:
        """Full fine-tuning's advantage on the validation set; negative if it is worse."""
        return self.full.mean - self.chosen.mean

    @property
    def error(self) -> float | None:
        """Standard error of `lost` over the seeds; None if one of the schemes has a single seed."""
        squares = [
            one.spread**2 / len(one.scores)
            for one in (self.chosen, self.full)
            if len(one.scores) > 1
        ]
        return sqrt(sum(squares)) if len(squares) == 2 else None

    def __str__(self) -> str:
        text = (
            f"Full fine-tuning, beyond the budget with {self.full_bytes:,} bytes, reaches "
            f"{self.judge.described(self.full.mean)}"
        )
        points = f"{100 * abs(self.lost):.2f} {self.judge.unit}"
        more, less = ("more", "less") if self.judge.sign > 0 else ("better", "worse")
        if self.error is None:
            side = more if self.lost > 0 else less
            return f"{text}, {points} {side}; one seed does not tell that from chance."
        if abs(self.lost) <= SIGNIFICANT * self.error:
            return f"{text}: no difference that {len(self.full.scores)} seeds show."
        if self.lost < 0:
            return f"{text}, {points} {less}."
        return f"{text}: this budget costs {points}; a larger one may win them back."
