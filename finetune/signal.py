"""Whether measured gains distinguish items, or are noise.

An item's gain differs by the seed of its training and by the examples that happen to judge it. The
residual of a table [items, seeds, parts of the judged examples] after removing items, seeds and
parts is noise, from which follows the noise variance of an item's mean (Brennan 2001,
"Generalizability Theory": items crossed with seeds and parts).

The reliability of gains is the fraction of their variance that is not noise. Its root is their
correlation with the true gains: below `ENOUGH` that is less than 0.7, and an order by such gains is
no order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH = 0.5
"""The least reliability of gains by which schemes are searched."""


@dataclass(frozen=True)
class Noise:
    """Variances of an item's gain without what all items share: of one seed, and of the examples.

    `examples` is what more seeds do not average away, as all are judged by the same examples.
    """

    seeds: float
    examples: float = 0.0

    def of_mean(self, seeds: int) -> float:
        """Return the variance of a mean over this many seeds."""
        return self.seeds / seeds + self.examples


def noise_of(gains: Sequence[Sequence[Sequence[float]]]) -> Noise | None:
    """Return the noise of gains [items, seeds, parts]; None of fewer than two items or seeds.

    Of one part alone the chance of the examples is not known, and counts as none.
    """
    table = np.array(gains, np.float64)
    if table.ndim != 3 or min(table.shape[:2]) < 2:
        return None
    items, seeds, parts = table.shape
    by_seed, by_part = table.mean(2), table.mean(1)
    seed_variance = _squares(_centred(by_seed)) / ((items - 1) * (seeds - 1))
    if parts < 2:
        return Noise(seed_variance)
    rest = _centred(table - by_seed[:, :, None])
    freedom = (items - 1) * (parts - 1)
    part_variance = _squares(_centred(by_part)) / freedom / parts
    both = _squares(rest) / (freedom * (seeds - 1)) / (seeds * parts)
    return Noise(seed_variance, max(0.0, part_variance - both))


def reliability_of(noise: float, observed: float) -> float:
    """Return the share of the observed variance of gains that chance does not explain, 0 to 1."""
    return max(0.0, 1 - noise / observed) if observed > 0 else 0.0


def _centred(table: np.ndarray) -> np.ndarray:
    """Take off the means of the first two axes."""
    rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    return np.asarray(table - rows - columns + table.mean((0, 1), keepdims=True))


def _squares(table: np.ndarray) -> float:
    return float((table**2).sum())
