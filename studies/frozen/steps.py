"""CPU time of a training step of several artifacts, which take turns on one thread."""

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine import load
from pockengine.backends.registry import open_session

ROUNDS, STEPS = 5, 3


@dataclass(frozen=True)
class Spread:
    """Milliseconds: the median of n, the least and the most."""

    median: float
    low: float
    high: float
    n: int


def cpu_times(artifacts: Sequence[Path], batch: Mapping[str, np.ndarray]) -> list[Spread]:
    """Return the time of each one's step on a batch; one round warms up.

    Of the CPU and not of the clock: other work that the machine does counts for less.
    """
    times: list[list[float]] = [[] for _ in artifacts]
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(open_session(load(folder).artifact, threads=1))
            for folder in artifacts
        ]
        for turn in range(ROUNDS + 1):
            for session, kept in zip(sessions, times, strict=True):
                for _ in range(STEPS):
                    start = time.process_time()
                    session.train_step(batch, lr=0.0)
                    if turn:
                        kept.append(1e3 * (time.process_time() - start))
    return [Spread(statistics.median(t), min(t), max(t), len(t)) for t in times]
