"""Which channels of a weight train: sets of indices, and rankings that choose them.

A ranking is a permutation of a weight's channels, the most wanted first; a share of the channels is
its beginning. "magnitude" is tiny-training's magnitude+: the channels whose weights have the
largest 2-norm, input channels of a dense weight, channels of a depthwise one. Scores that need data
(activations, Fisher information) are given from outside.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pockengine.compiler.autodiff import Channels
from pockengine.compiler.ir.contents import Contents
from pockengine.errors import SchemeError

LEADING = "leading"
CRITERIA = (LEADING, "magnitude", "random")


def rank(weight: Contents, axis: int, by: str, seed: int | Sequence[int] = 0) -> np.ndarray:
    """Return the channels along `axis` of a weight by one of CRITERIA, the first to train first.

    Random ones follow the seed: give each weight its own, or weights of one width get the same.
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
    """Return channels by falling score; equal scores keep their order, and NaN comes last."""
    return np.argsort(-np.nan_to_num(np.asarray(scores, np.float64), nan=-np.inf), kind="stable")


def magnitudes(weight: np.ndarray, axis: int) -> np.ndarray:
    """Return the 2-norm of each channel's weights, f64 [channels]."""
    others = tuple(other for other in range(weight.ndim) if other != axis)
    return np.asarray(np.sqrt(np.square(weight, dtype=np.float64).sum(axis=others)))


def channel_count(count: int, share: float) -> int:
    """Return how many of `count` channels a share is: rounded, at least one."""
    return max(1, round(count * share))


def channel_set(indices: Iterable[int], count: int) -> Channels:
    """Return these channels of `count`: None for all, a range where they are neighbours."""
    ordered = tuple(sorted(int(index) for index in indices))
    if len(ordered) == count:
        return None
    neighbours = ordered[-1] - ordered[0] + 1 == len(ordered)
    return range(ordered[0], ordered[-1] + 1) if neighbours else ordered
