"""Learning-rate schedules for training loops in Python; the runner's, pe_schedule.h, are the same.

schedule = RateSchedule("cosine", rate=0.1, steps=1000, warmup=50)
session.train_step(inputs, lr=schedule(session.steps + 1))
"""

import math
from dataclasses import dataclass

from pockengine.errors import RuntimeFailure

KINDS = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class RateSchedule:
    """The rate at each step of a run of `steps`, the first being step 1.

    It rises linearly over `warmup` steps, then stays, falls linearly, or falls as a cosine
    (arXiv 1608.03983); no step has the rate 0.
    """

    kind: str
    rate: float
    steps: int
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RuntimeFailure(f"unknown schedule {self.kind!r}; known: {', '.join(KINDS)}")
        if not 0 <= self.warmup < self.steps:
            raise RuntimeFailure(f"{self}: warmup must be at least 0 and less than steps")

    def __call__(self, step: int) -> float:
        """Return the rate of a step; after the last one it stays what it was there."""
        if step <= self.warmup:
            return self.rate * step / self.warmup
        progress = (min(step, self.steps) - 1 - self.warmup) / (self.steps - self.warmup)
        if self.kind == "linear":
            return self.rate * (1 - progress)
        if self.kind == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * progress))
        return self.rate
