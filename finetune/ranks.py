"""Rank correlation."""

import statistics
from collections.abc import Sequence


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rho; None if one is constant or there are fewer than three."""
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return statistics.correlation(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share a rank."""
    ordered = sorted(values)
    return [
        statistics.fmean(place for place, other in enumerate(ordered) if other == value)
        for value in values
    ]
