"""Whether measured gains distinguish items, or are noise.

An item's gain depends on the seed of its training and on the examples used for evaluation. The
residual of a table [items, seeds, parts of the evaluation examples] after removing items, seeds and
parts is noise. It gives the noise variance of an item's mean (Brennan 2001, "Generalizability
Theory": items crossed with seeds and parts).

The reliability of gains is the fraction of their variance that is not noise. Its square root is
their correlation with the true gains: below `ENOUGH` that is less than 0.7, too low to rank items.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH = 0.5
"""Minimum reliability of gains for a search."""


@dataclass(frozen=True)
class Noise:
    """Noise variances of an item's gain, without effects shared by all items: seeds and examples.

    `examples` is the part that more seeds do not average out, since all use the same examples.
    """

    seeds: float
    examples: float = 0.0

    def of_mean(self, seeds: int) -> float:
        """Return the noise variance of a mean over this many seeds."""
        return self.seeds / seeds + self.examples


def noise_of(gains: Sequence[Sequence[Sequence[float]]]) -> Noise | None:
    """Return the noise of gains [items, seeds, parts]; None for fewer than two items or seeds.

    With a single part the noise of the examples is unknown and counts as zero.
    """
    table = np.array(gains, np.float64)
    if table.ndim != 3 or min(table.shape[:2]) < 2:
        return None
    items, seeds, parts = table.shape
    by_seed, by_part = table.mean(2), table.mean(1)
    seed_variance = _squares(_centered(by_seed)) / ((items - 1) * (seeds - 1))
    if parts < 2:
        return Noise(seed_variance)
    residual = _centered(table - by_seed[:, :, None])
    freedom = (items - 1) * (parts - 1)
    part_variance = _squares(_centered(by_part)) / freedom / parts
    both = _squares(residual) / (freedom * (seeds - 1)) / (seeds * parts)
    return Noise(seed_variance, max(0.0, part_variance - both))


def reliability_of(noise: float, observed: float) -> float:
    """Return the fraction of the observed variance of gains that is not noise, 0 to 1."""
    return max(0.0, 1 - noise / observed) if observed > 0 else 0.0


def _centered(table: np.ndarray) -> np.ndarray:
    """Subtract the means of the first two axes."""
    rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
    return np.asarray(table - rows - columns + table.mean((0, 1), keepdims=True))


def _squares(table: np.ndarray) -> float:
    return float((table**2).sum())
