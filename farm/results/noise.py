"""Statistics of noisy figures: an interval of a ratio of medians, and level shifts of a series."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.99  # a nightly run compares dozens of figures: one false alarm in a hundred
SEED = 0
SHORTEST = 3  # values on each side of a move
P_VALUE = 0.01


@dataclass(frozen=True)
class Interval:
    """A ratio with its bootstrap confidence interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"x {self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio_interval(now: Sequence[float], before: Sequence[float]) -> Interval:
    """Return the ratio of two samples' medians, with its interval; both positive, not empty."""
    random = np.random.default_rng(SEED)
    medians = [
        np.median(
            np.asarray(values)[random.integers(0, len(values), (RESAMPLES, len(values)))], axis=1
        )
        for values in (now, before)
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians[0] / medians[1], [tail, 1 - tail])
    ratio = statistics.median(now) / statistics.median(before)
    return Interval(ratio, min(float(low), ratio), max(float(high), ratio))


def find_moves(values: Sequence[float], smallest: float) -> list[int]:
    """Return where a series of positive values moves to another level, as indices of the first new.

    The best split of the series is a level shift if shuffled series rarely split as well and the
    medians differ by `smallest` (0.02 is 2 %); both parts are then searched recursively.
    """
    random = np.random.default_rng(SEED)
    return _moves(np.log(np.asarray(values, dtype=float)), 0, math.log1p(smallest), random)


def _moves(
    logs: "np.ndarray", offset: int, smallest: float, random: np.random.Generator
) -> list[int]:
    if len(logs) < 2 * SHORTEST:
        return []
    place, gain = _best_split(logs)
    step = abs(float(np.median(logs[place:]) - np.median(logs[:place])))
    if gain <= 0 or step < smallest:
        return []
    shuffled = [_best_split(random.permutation(logs))[1] for _ in range(int(2 / P_VALUE))]
    if sum(other >= gain for other in shuffled) > P_VALUE * len(shuffled):
        return []
    left = _moves(logs[:place], offset, smallest, random)
    right = _moves(logs[place:], offset + place, smallest, random)
    return [*left, offset + place, *right]


def _best_split(logs: "np.ndarray") -> tuple[int, float]:
    """Return the split with the least variance in both parts, and the variance it removes."""
    count = len(logs)
    places = np.arange(SHORTEST, count - SHORTEST + 1)
    sums = np.cumsum(logs)[places - 1]
    means = sums / places - (np.sum(logs) - sums) / (count - places)
    gains = places * (count - places) / count * means**2
    best = int(np.argmax(gains))
    return int(places[best]), float(gains[best])
