"""Check that a run on a board computed the same numbers as PyTorch.

Three comparisons, each relative: every loss; every tensor of the checkpoint, to its largest
element; and every trained tensor's change, to its largest change, which finds an update that is
missing or wrong in a tensor that moves less than the second would notice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pockengine.errors import FarmError

LOSS_TOLERANCE = 1e-4
WEIGHT_TOLERANCE = 1e-3
CHANGE_TOLERANCE = 5e-2
# Below these values a difference is rounding: of nearly cancelling logits in a small loss, of a
# tensor whose true value is zero, of small weights that hardly change.
SMALL_LOSS = 1e-2
SMALL_WEIGHT = 1e-3
SMALL_CHANGE = 5e-6

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """The largest relative errors, and the faults, empty if there are none. `note` describes
    further comparisons.
    """

    loss_error: float
    weight_error: float
    change_error: float
    problems: tuple[str, ...]
    note: str = ""

    @property
    def largest(self) -> float:
        """The largest relative error of losses and weights."""
        return max(self.loss_error, self.weight_error)


def compare(
    losses: Sequence[float],
    tensors: Arrays,
    expected_losses: Sequence[float],
    expected: Arrays,
    start: Arrays,
    trained: Sequence[str],
) -> Check:
    """Compare a run's losses and checkpoint with the reference's, in PyTorch's names and layouts.

    `start` are the weights before training. FarmError when losses or trained tensors are missing.
    """
    if len(losses) != len(expected_losses):
        raise FarmError(f"{len(losses)} losses came back instead of {len(expected_losses)}")
    missing = sorted(set(trained) - set(tensors))
    if missing:
        raise FarmError(f"the checkpoint lacks trained tensors: {', '.join(missing[:5])}")
    loss_errors = {
        f"the loss of step {i}": _relative(a, b, SMALL_LOSS)
        for i, (a, b) in enumerate(zip(losses, expected_losses, strict=True), 1)
    }
    weight_errors = {
        name: _relative(tensors[name], expected[name], SMALL_WEIGHT) for name in tensors
    }
    change_errors = {
        f"the change of {name}": _relative(
            tensors[name] - start[name],
            expected[name] - start[name],
            _smallest_change(start[name], len(losses)),
        )
        for name in trained
    }
    problems = (
        *_beyond(loss_errors, LOSS_TOLERANCE),
        *_beyond(weight_errors, WEIGHT_TOLERANCE),
        *_beyond(change_errors, CHANGE_TOLERANCE),
    )
    worst = [max(errors.values(), default=0.0) for errors in (loss_errors, weight_errors)]
    return Check(worst[0], worst[1], max(change_errors.values(), default=0.0), problems)


def _smallest_change(start: np.ndarray, steps: int) -> float:
    """Return the change of a tensor whose rounding may already be beyond the tolerance.

    Each step rounds every element by half a unit in its last place, here and in the reference.
    """
    unit = float(np.spacing(np.float32(np.max(np.abs(start), initial=0.0))))
    return max(SMALL_CHANGE, steps * unit / CHANGE_TOLERANCE)


def loss_error(losses: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest relative error of losses; infinite when their number differs."""
    if len(losses) != len(expected):
        return float("inf")
    pairs = zip(losses, expected, strict=True)
    return float(max((_relative(a, b, SMALL_LOSS) for a, b in pairs), default=0.0))


def _relative(actual: np.ndarray | float, expected: np.ndarray | float, small: float) -> float:
    """Return the largest difference over the largest expected element, or over `small`."""
    if np.shape(actual) != np.shape(expected):
        raise FarmError(f"a tensor came back as {np.shape(actual)} instead of {np.shape(expected)}")
    difference = np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64))
    scale = max(float(np.max(np.abs(expected), initial=0.0)), small)
    return float(np.max(difference, initial=0.0)) / scale


def _beyond(errors: Mapping[str, float], tolerance: float) -> list[str]:
    """Describe the first error beyond the tolerance and how many follow; NaN is beyond any."""
    wrong = [(name, error) for name, error in errors.items() if not error <= tolerance]
    if not wrong:
        return []
    name, error = wrong[0]
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return [f"{name} is off by {error:.1e} where {tolerance:g} is allowed{more}"]
