"""Step times of several sessions, which take turns on one thread."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.backends.session import Session

ROUNDS, STEPS = 5, 3


@dataclass(frozen=True)
class Spread:
    """Milliseconds: the median of n, the minimum and the maximum."""

    median: float
    low: float
    high: float
    n: int


def step_times(
    sessions: Sequence[Session], batch: Mapping[str, np.ndarray], clock: Callable[[], float]
) -> list[Spread]:
    """Return each session's step time on a batch, by a clock in seconds; one round warms up."""
    times: list[list[float]] = [[] for _ in sessions]
    for turn in range(ROUNDS + 1):
        for session, measured in zip(sessions, times, strict=True):
            for _ in range(STEPS):
                start = clock()
                session.train_step(batch, lr=0.0)
                if turn:
                    measured.append(1e3 * (clock() - start))
    return [Spread(statistics.median(t), min(t), max(t), len(t)) for t in times]
