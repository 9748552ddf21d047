"""What controls a step: variables of the file, so that `train` takes data and nothing else.

`configure` sets the learning rate and where the counts begin. Each step counts on by itself: the
step's number, and the seed of its random numbers, which `Session.train_step` makes one larger too.
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
"""What a file begins with. The rate is that of Keras's SGD, where nobody configures another."""


def is_training(entry: str) -> bool:
    """Whether an entry writes params, and is controlled; those of other sizes end in @SIZE."""
    return entry.partition("@")[0] in ("train", "update")


def variable_of(control: str) -> str:
    """Name of a control's variable, which no param has: theirs have no colon."""
    return f"control:{control}"
