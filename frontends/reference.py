"""A framework's own loss and gradients on the example inputs, the reference for a compiled step.

Each frontend has a `reference(model, example_inputs, loss, nudge)` beside its import. `nudge` is
applied to every float parameter and input; the model itself is not modified.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pockengine.frontends.probabilities import CROSS_ENTROPIES

Nudge = Callable[[np.ndarray], np.ndarray]

SEED = 0
"""Seed of random targets."""


@dataclass(frozen=True)
class Reference:
    """One forward and backward pass of the framework.

    `feed` holds the graph's inputs by name, `gradients` those of the trained parameters in the
    framework's own order of dimensions; None if the framework has none of its own. `predicted`
    holds the outputs in evaluation mode by name; it is empty if the model has only one mode.
    """

    feed: Mapping[str, np.ndarray]
    loss: float
    gradients: Mapping[str, np.ndarray] | None
    predicted: Mapping[str, np.ndarray] = field(default_factory=dict)


def draw_target(loss: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw random targets for an output of this shape, for cross entropy or "mse"."""
    rng = np.random.default_rng(SEED)
    if loss in CROSS_ENTROPIES:
        return rng.integers(shape[1], size=(shape[0], *shape[2:]))
    return rng.standard_normal(shape).astype(np.float32)
