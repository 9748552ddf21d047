"""Selection of a weight's trained channels: index sets, and rankings.

A ranking is a permutation of a weight's channels, best first; a share takes its first channels.
"magnitude" is tiny-training's magnitude+: the channels whose weights have the largest 2-norm, input
channels of a dense weight, channels of a depthwise one. Scores that need data (activations, Fisher
information) are computed elsewhere.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.contents import Contents
from pockengine.errors import SchemeError

LEADING = "leading"
CRITERIA = (LEADING, "magnitude", "random")


def rank(weight: Contents, axis: int, by: str, seed: int | Sequence[int] = 0) -> np.ndarray:
    """Rank the channels along `axis` of a weight by one of CRITERIA, best first.

    A random ranking depends on the seed only: use one per weight, or weights of equal width get
    equal channels.
    """
    count = weight.type.shape[axis]
    if by == "magnitude":
        return rank_scores(magnitudes(weight.read(), axis))
    if by == "random":
        return np.random.default_rng(seed).permutation(count)
    if by == LEADING:
        return np.arange(count)
    raise SchemeError(
        f"channels by {by!r} are not chosen from weights alone; use one of {', '.join(CRITERIA)}, "
        "or list the channels that pockengine.finetune.selection chooses from data"
    )


def rank_scores(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return channels by descending score; equal scores keep their order, and NaN comes last."""
    return np.argsort(-np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf), kind="stable")


def magnitudes(weight: np.ndarray, axis: int) -> np.ndarray:
    """Return the 2-norm of each channel's weights, f64 [channels]."""
    others = tuple(other for other in range(weight.ndim) if other != axis)
    return np.asarray(np.sqrt(np.square(weight, dtype=np.float64).sum(axis=others)))


def channel_count(count: int, share: float) -> int:
    """Return the number of channels in a share of `count`: rounded, at least one."""
    return max(1, round(count * share))


def channel_set(indices: Iterable[int], count: int) -> Channels:
    """Return these channels of `count`: None for all, a range if they are contiguous."""
    ordered = tuple(sorted(int(index) for index in indices))
    if len(ordered) == count:
        return None
    neighbors = ordered[-1] - ordered[0] + 1 == len(ordered)
    return range(ordered[0], ordered[-1] + 1) if neighbors else ordered
