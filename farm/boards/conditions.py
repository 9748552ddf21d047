"""Conditions of a measurement: governor, frequency, temperature, throttling, load.

Queried before, every few seconds during, and after. Missing values (an emulated board has none) are
ignored; others can make the run invalid. The CPU use of other processes is measured before and
after, while the board is idle.
"""

import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pockengine.errors import FarmError
from pockengine.farm.boards.facts import BoardFacts, ask
from pockengine.farm.load import cpu_times, mark_between
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.transport import Transport

PERIOD_S = 5.0
HOT_C = 80.0  # a Raspberry Pi starts throttling here
DROP = 0.9  # of the highest frequency; a reading below this invalidates the run
THROTTLED_NOW = 0xF  # a Pi's bits of the present state; the upper ones persist until reboot
WINDOW, TOLERANCE = 3, 0.03
# "$1" is the parent of /proc, "$2" the seconds to wait first, so that the last program can exit.
IDLE_S = 1
IDLE_CHECK = r"""
look() { [ -r "$1/proc/stat" ] && read -r line < "$1/proc/stat" && printf '%s\n' "$line"; }
sleep "$2"; look "$1"; sleep "$2"; look "$1"
"""


@dataclass
class Conditions:
    """The board's readings, in order."""

    facts: list[BoardFacts] = field(default_factory=list)
    busy: str | None = None
    """The mark for records, if others used the board."""

    def problems(self) -> list[str]:
        """Return why the run is invalid; empty if it is valid."""
        if not self.facts:
            return ["the board did not say under what conditions it ran"]
        return [*self._throttling(), *self._changes()]

    def describe(self) -> str:
        """Return a line for a record's note."""
        parts = []
        governors = sorted({one.governor for one in self.facts if one.governor})
        if governors:
            parts.append(f"governor {' and '.join(governors)}")
        parts += _range("MHz", [one.frequency_mhz for one in self.facts])
        parts += _range("°C", [one.temperature_c for one in self.facts])
        return ", ".join(parts) or "the board reports no conditions"

    def _throttling(self) -> Iterator[str]:
        first, last = self.facts[0], self.facts[-1]
        if first.throttled is not None and last.throttled is not None:
            times = last.throttled - first.throttled
            if times > 0:
                yield f"it throttled {times} times"
        flags = [one.flags for one in self.facts if one.flags is not None]
        if flags and (any(bits & THROTTLED_NOW for bits in flags) or flags[-1] & ~flags[0]):
            yield f"it throttled (flags {flags[0]:#x} to {flags[-1]:#x})"

        thermal = max((one.thermal or 0 for one in self.facts), default=0)
        if thermal > 0:
            yield f"it throttled (Android's thermal status {thermal})"

    def _changes(self) -> Iterator[str]:
        if len({one.boot for one in self.facts if one.boot}) > 1:
            yield "it rebooted"
        if len({one.governor for one in self.facts if one.governor}) > 1:
            yield "its governor changed"
        for one in self.facts[1:-1]:  # the board may be idle before and after
            now, most = one.frequency_mhz, one.max_frequency_mhz
            if now and most and now < DROP * most:
                yield f"it ran at {now:.0f} of {most:.0f} MHz"
                break
        heat = max((one.temperature_c or 0.0 for one in self.facts), default=0.0)
        if heat > HOT_C:
            yield f"it was {heat:.0f} °C hot"


@contextmanager
def watched(
    transport: Transport, root: str = "", period_s: float = PERIOD_S, idle_s: int = IDLE_S
) -> Iterator[Conditions]:
    """Query the board before, during and after the block; `root` is prepended to /proc and /sys."""
    conditions = Conditions()
    over = threading.Event()

    def look() -> None:
        with suppress(FarmError):  # busy or disconnected; the run itself reports that
            conditions.facts.append(ask(transport, root))

    def look_while_it_rests() -> None:
        with suppress(FarmError):
            conditions.busy = conditions.busy or _busy_mark(transport, root, idle_s)
        look()

    def keep_looking() -> None:
        while not over.wait(period_s):
            look()

    look_while_it_rests()
    watcher = threading.Thread(target=keep_looking, daemon=True)
    watcher.start()
    try:
        yield conditions
    finally:
        over.set()
        watcher.join()
        look_while_it_rests()


def _busy_mark(transport: Transport, root: str, idle_s: int) -> str | None:
    """Return the busy mark if other processes use the idle board; None if it cannot tell."""
    argv = ["sh", "-c", IDLE_CHECK, "rest", root, str(idle_s)]
    result = transport.run(argv, timeout_s=30, limits=CommandLimits(1 << 20))
    times = [cpu_times(line) for line in result.stdout.decode(errors="replace").splitlines()]
    known = [one for one in times if one is not None]
    return mark_between(*known) if len(known) == 2 else None


def steady_from(times: Sequence[float]) -> int | None:
    """Return the first steady step; None if there is none in the first half.

    Times are steady once a window of three steps agrees with all later steps within 3 %.
    """
    for start in range(len(times) // 2 + 1):
        window, remaining = times[start : start + WINDOW], times[start + WINDOW :]
        if len(window) == WINDOW and remaining:
            now, later = statistics.median(window), statistics.median(remaining)
            if abs(now - later) <= TOLERANCE * later:
                return start
    return None


def _range(unit: str, values: Sequence[float | None]) -> list[str]:
    known = [value for value in values if value is not None]
    if not known:
        return []
    low, high = min(known), max(known)
    return [f"{low:.0f} {unit}" if round(low) == round(high) else f"{low:.0f} to {high:.0f} {unit}"]
