"""Duty cycling: pause a training by a share of time, at high temperature, or at low battery.

Equivalent to the runner's `--duty`, `--pause-above` and `--pause-below`. Results of steps do not
change.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.gauges import CHARGE, TEMPERATURE, Quantity, find, read
from pockengine.errors import RuntimeFailure

BETTER = 5
"""Hysteresis in degrees, or points of battery: without it a training would stop and go at each
step.
"""
LOOK_S = 1.0
LOOKS = 3
"""Reads of a file before its failure counts: a busy sensor returns EAGAIN."""
_MOST = 100  # percent


class DutyCycle(Callback):
    """Pauses a training between its steps.

    - `percent` of the time may compute, by the monotonic clock: after each step it rests.
    - Above `pause_above` degrees Celsius it pauses until it is 5 degrees cooler. `thermal` is the
      file with thousandths of a degree, or the first /sys/class/thermal/thermal_zone*/temp.
    - Below `pause_below` percent of the battery it pauses until there are 5 more. `battery` is the
      file with percents, or the first /sys/class/power_supply/*/capacity.

    `say` is called with each pause and its end. RuntimeFailure for an unreadable file: here, and
    during a training after three reads, which saves and ends it. A signal ends a pause.
    """

    def __init__(
        self,
        percent: float = _MOST,
        *,
        pause_above: float | None = None,
        pause_below: float | None = None,
        thermal: Path | str | None = None,
        battery: Path | str | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        _check(percent, pause_above, pause_below, thermal=thermal, battery=battery)
        self._percent, self._say = percent, say
        self._pauses = []
        if pause_above is not None:
            place = find(TEMPERATURE, thermal)
            self._pauses.append(_Pause(TEMPERATURE, place, pause_above, pause_above - BETTER))
        if pause_below is not None:
            place, enough = find(CHARGE, battery), min(pause_below + BETTER, _MOST)
            self._pauses.append(_Pause(CHARGE, place, pause_below, enough))
        self._begun: float | None = None
        self._until = 0.0
        self._missed = 0

    def on_begin(self, session: Session) -> None:
        """Reset the clock: time before the first step does not count."""
        self._begun, self._until, self._missed = None, 0.0, 0
        for pause in self._pauses:
            pause.since = None

    def wait(self) -> float:
        """Rest in proportion to the last step's time, then check the files each second."""
        now = time.monotonic()
        if self._begun is not None:
            busy = now - self._begun
            self._begun, self._until = None, now + busy * (_MOST - self._percent) / self._percent
        if now < self._until:
            return self._until - now
        if self._is_paused():
            return LOOK_S
        self._begun = time.monotonic()
        return 0.0

    def _is_paused(self) -> bool:
        """Whether a file requests a pause, or cannot be read for the moment."""
        try:
            paused = any(pause.waits(self._say) for pause in self._pauses)
        except RuntimeFailure:
            self._missed += 1
            if self._missed == LOOKS:
                raise
            return True
        self._missed = 0
        return paused


@dataclass
class _Pause:
    """A file, and the thresholds at which a training pauses and continues."""

    quantity: Quantity
    path: Path
    limit: float
    enough: float
    since: float | None = None

    def waits(self, say: Callable[[str], None]) -> bool:
        """Read the file and return whether the training has to wait; report a change to `say`."""
        value = read(self.quantity, self.path)
        above = self.enough < self.limit
        limit = self.limit if self.since is None else self.enough
        beyond = value > limit if above else value < limit
        if beyond and self.since is None:
            self.since = time.monotonic()
            say(
                f"paused: {self.path} says {value:g} {self.quantity.unit}, "
                f"{'above' if above else 'below'} {self.limit:g}; it continues at {self.enough:g}"
            )
        elif not beyond and self.since is not None:
            say(f"continued after {time.monotonic() - self.since:.0f} s")
            self.since = None
        return beyond


def _check(
    percent: float,
    pause_above: float | None,
    pause_below: float | None,
    thermal: Path | str | None,
    battery: Path | str | None,
) -> None:
    for name, share in (("percent", percent), ("pause_below", pause_below)):
        if share is not None and not 0 < share <= _MOST:
            raise RuntimeFailure(f"{name} is {share:g}; give more than 0 percent, and at most 100")
    if (thermal is not None and pause_above is None) or (
        battery is not None and pause_below is None
    ):
        raise RuntimeFailure("`thermal` needs `pause_above`, and `battery` `pause_below`: a limit")
