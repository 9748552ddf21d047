"""Recipe of a trial: optimizer, rate schedule, epochs, and data order."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pockengine.backends.rate_schedule import PLAIN, RateSchedule
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.errors import FinetuneError


@dataclass(frozen=True)
class Recipe:
    """Everything about a training run except the model, the scheme and the data.

    `rate` is the maximum of the schedule, which warms up over the fraction `warmup` of all steps.
    Data order and dropout depend only on `seed`.
    """

    rate: float
    epochs: int
    seed: int = 0
    optimizer: Optimizer = field(default_factory=lambda: Sgd(momentum=0.9))
    warmup: float = 0.05
    schedule: str = "cosine"

    def __post_init__(self) -> None:
        if not self.rate >= 0 or self.epochs < 1 or not 0 <= self.warmup < 1:
            raise FinetuneError(
                f"{self}: the rate must be at least 0, epochs at least 1, warmup in [0, 1)"
            )
        if self.schedule not in PLAIN:
            raise FinetuneError(f"unknown schedule {self.schedule!r}; known: {', '.join(PLAIN)}")

    def rates(self, steps: int) -> RateSchedule:
        """Return the rate of each of `steps` steps, counted from 1."""
        return RateSchedule(
            self.schedule, self.rate, steps, min(int(self.warmup * steps), steps - 1)
        )


def settings_of(optimizer: Optimizer) -> str:
    """Format an optimizer with its non-default settings.

    Measurements are stored under this text, so new settings of optimizers must not change it.
    """
    settings: Any = optimizer
    unusual = [
        f"{each.name}={getattr(optimizer, each.name)!r}"
        for each in fields(settings)
        if getattr(optimizer, each.name) != each.default
    ]
    return f"{type(optimizer).__name__}({', '.join(unusual)})"


def order(count: int, epoch: int, seed: int) -> np.ndarray:
    """Return the order [count] of examples in an epoch."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def batches(count: int, batch: int, epoch: int, seed: int) -> np.ndarray:
    """Return the example indices of an epoch's steps, [steps, batch]; the last step is padded.

    Padding is taken from the start of the same order, so every example occurs at least once.
    """
    steps = -(-count // batch)
    return np.resize(order(count, epoch, seed), (steps, batch))
