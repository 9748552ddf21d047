"""Shrink measured gains towards the mean of similar items.

A measured gain includes noise. Among many items measured a few times, the best are also the
luckiest, and unlucky ones would never be chosen. The variance over seeds estimates the noise, and
the variance over items the true differences. Their ratio determines how far each gain is shrunk
towards the mean of items of the same kind and share (Efron and Morris 1975, "Data analysis using
Stein's estimator and its generalizations"). If that mean is negative, gains are shrunk towards
zero: a short probe may end before the parameter has recovered from its first steps.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from pockengine.finetune.contributions import Contributions, Gain, Item
from pockengine.finetune.signal import reliability_of

Group = tuple[str, float]


def reliability(contributions: Contributions) -> float | None:
    """Return the share of the variance of gains that is not noise, 0 to 1 (signal.py).

    None if the noise is unknown, or no two items of a kind and share were measured.
    """
    noise, observed = contributions.noise, _variance_within(_groups(contributions))
    if noise is None or not observed:
        return None
    seeds = max(gain.n for gain in contributions.gains.values())
    return reliability_of(noise.of_mean(seeds), observed)


def shrunk(contributions: Contributions) -> Contributions:
    """Return the gains shrunk towards their groups' means, or 0; unchanged if noise is unknown."""
    gains, noise, groups = contributions.gains, contributions.noise, _groups(contributions)
    observed = _variance_within(groups)
    if noise is None or not observed:
        return contributions

    def moved(item: Item, gain: Gain) -> Gain:
        middle = max(0.0, statistics.fmean(groups[_group(item)]))
        share = reliability_of(noise.of_mean(gain.n), observed)
        return replace(gain, mean=middle + share * (gain.mean - middle))

    return replace(contributions, gains={item: moved(item, gain) for item, gain in gains.items()})


def _groups(contributions: Contributions) -> dict[Group, list[float]]:
    groups: dict[Group, list[float]] = defaultdict(list)
    for item, gain in contributions.gains.items():
        groups[_group(item)].append(gain.mean)
    return groups


def _group(item: Item) -> Group:
    return item.kind, item.share


def _variance_within(groups: Mapping[Group, list[float]]) -> float:
    """Return the variance of the gains about their groups' means; 0 without a group of two."""
    freedom = sum(len(gains) - 1 for gains in groups.values())
    squares = sum(
        (gain - statistics.fmean(gains)) ** 2 for gains in groups.values() for gain in gains
    )
    return squares / freedom if freedom else 0.0
