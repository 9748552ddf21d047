"""Measured gains, less their luck: each is drawn towards the mean of its like.

What was measured of an item is its gain and chance. Of many items that were measured a few times
the best are the luckiest as well, and items without luck would never be chosen. The seeds tell how
much is chance, the items how much they differ; by the ratio of the two each gain is drawn towards
the mean of items of the same kind and share (Efron and Morris 1975, "Data analysis using Stein's
estimator and its generalizations"). Where that mean is a loss, gains are drawn towards none: what
short probes unsettle a whole training settles.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from pockengine.finetune.contributions import Contributions, Gain, Item
from pockengine.finetune.signal import reliability_of

Group = tuple[str, float]


def reliability(contributions: Contributions) -> float | None:
    """Return how far the gains differ by more than chance, 0 to 1 (signal.py).

    None if chance is not known, or no two items of a kind and share were measured.
    """
    noise, observed = contributions.noise, _variance_within(_groups(contributions))
    if noise is None or not observed:
        return None
    seeds = max(gain.n for gain in contributions.gains.values())
    return reliability_of(noise.of_mean(seeds), observed)


def shrunk(contributions: Contributions) -> Contributions:
    """Return the gains drawn towards their groups' means, or 0; unchanged of unknown noise."""
    gains, noise, groups = contributions.gains, contributions.noise, _groups(contributions)
    observed = _variance_within(groups)
    if noise is None or not observed:
        return contributions

    def drawn(item: Item, gain: Gain) -> Gain:
        middle = max(0.0, statistics.fmean(groups[_group(item)]))
        kept = reliability_of(noise.of_mean(gain.n), observed)
        return replace(gain, mean=middle + kept * (gain.mean - middle))

    return replace(contributions, gains={item: drawn(item, gain) for item, gain in gains.items()})


def _groups(contributions: Contributions) -> dict[Group, list[float]]:
    groups: dict[Group, list[float]] = defaultdict(list)
    for item, gain in contributions.gains.items():
        groups[_group(item)].append(gain.mean)
    return groups


def _group(item: Item) -> Group:
    return item.kind, item.share


def _variance_within(groups: Mapping[Group, list[float]]) -> float:
    """Return the variance of the gains about their groups' means; 0 where no group has two."""
    freedom = sum(len(gains) - 1 for gains in groups.values())
    squares = sum(
        (gain - statistics.fmean(gains)) ** 2 for gains in groups.values() for gain in gains
    )
    return squares / freedom if freedom else 0.0
