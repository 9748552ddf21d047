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

Group = tuple[str, float]


def shrunk(contributions: Contributions) -> Contributions:
    """Return the gains drawn towards their groups' means, or 0; unchanged of unknown noise."""
    gains, noise = contributions.gains, contributions.noise
    groups: dict[Group, list[float]] = defaultdict(list)
    for item, gain in gains.items():
        groups[_group(item)].append(gain.mean)
    observed = _variance_within(groups)
    if noise is None or not observed:
        return contributions

    def drawn(item: Item, gain: Gain, noise: float) -> Gain:
        middle = max(0.0, statistics.fmean(groups[_group(item)]))
        kept = max(0.0, 1 - noise / gain.n / observed)
        return replace(gain, mean=middle + kept * (gain.mean - middle))

    return replace(
        contributions, gains={item: drawn(item, gain, noise) for item, gain in gains.items()}
    )


def _group(item: Item) -> Group:
    return item.kind, item.share


def _variance_within(groups: Mapping[Group, list[float]]) -> float:
    """Return the variance of the gains about their groups' means; 0 where no group has two."""
    freedom = sum(len(gains) - 1 for gains in groups.values())
    squares = sum(
        (gain - statistics.fmean(gains)) ** 2 for gains in groups.values() for gain in gains
    )
    return squares / freedom if freedom else 0.0
