"""Early stopping: a training ends when it no longer improves."""

import math
from dataclasses import dataclass

from pockengine.backends.training.history import Epoch
from pockengine.errors import RuntimeFailure

VALIDATION = "validation_"


@dataclass(frozen=True)
class EarlyStopping:
    """End a training when a figure has not improved for `patience` epochs.

    `monitor` is a figure of the history's epochs; it improves if it falls, or with `mode="max"`
    rises, by more than `least`. With `restore` the session ends in the state of the best epoch.
    """

    patience: int
    monitor: str = f"{VALIDATION}loss"
    mode: str = "min"
    least: float = 0.0
    restore: bool = True

    def __post_init__(self) -> None:
        if self.patience < 1 or self.mode not in {"min", "max"}:
            raise RuntimeFailure(
                f"early stopping with patience {self.patience} and mode {self.mode!r}: patience is "
                'at least 1, and mode "min" or "max"'
            )


class BestEpoch:
    """The best epoch so far, and the number of epochs since."""

    def __init__(self, rule: EarlyStopping) -> None:
        self.rule = rule
        self.best: Epoch | None = None
        self._waited = 0

    @property
    def over(self) -> bool:
        """Whether patience is exhausted."""
        return self._waited >= self.rule.patience

    def weigh(self, epoch: Epoch) -> bool:
        """Record an epoch; return whether it is the best so far."""
        figure = self._figure(epoch)
        if self.best is None or self._gain(figure, self._figure(self.best)) > self.rule.least:
            self.best, self._waited = epoch, 0
            return True
        self._waited += 1
        return False

    def _gain(self, new: float, old: float) -> float:
        """Return the improvement of a figure; NaN is worse than any number."""
        if math.isnan(new) or math.isnan(old):
            return -math.inf if math.isnan(new) else math.inf
        return new - old if self.rule.mode == "max" else old - new

    def _figure(self, epoch: Epoch) -> float:
        monitor = self.rule.monitor
        if monitor not in epoch.figures:
            raise RuntimeFailure(
                f"early stopping by {monitor}, which no epoch has; they have "
                f"{', '.join(epoch.figures)}: give validation data, or EarlyStopping(monitor=...)"
            )
        return epoch.figures[monitor]
