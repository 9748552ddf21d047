"""Controls of a step as variables of the file, so that `train` takes only data.

`configure` sets the learning rate and the initial counts. Each step increments the step number and
the random seed, as `Session.train_step` does.
"""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.controls import RATE, SEED, STEP

COUNTED = frozenset({STEP, SEED})
FIRST: Mapping[str, np.ndarray] = {
    RATE: np.asarray(0.01, np.float32),
    STEP: np.asarray(0, np.int32),
    SEED: np.asarray(0, np.int32),
}
"""Initial values. The rate is that of Keras's SGD, if it is not configured."""


def is_training(entry: str) -> bool:
    """Whether an entry writes params, and has controls; variants of other sizes end in @SIZE."""
    return entry.partition("@")[0] in ("train", "update")


def variable_of(control: str) -> str:
    """Name of a control's variable, distinct from all params, whose names have no colon."""
    return f"control:{control}"
