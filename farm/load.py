"""Whether others keep a machine busy: times that are taken then carry a mark.

A load average would count our own work of the last minute, so we look for a moment in which we
rest, before and after what is timed.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BUSY = "busy machine"
"""What the note of a record says whose times were taken on one."""
BUSY_SHARE = 0.1
SETTLE_S, LOOK_S = 0.3, 0.5
"""Threads of frameworks spin for a fifth of a second after their work: that is not others'."""
STAT = Path("/proc/stat")
TIMES, IDLE = 8, (3, 4)
"""How many times of all CPUs Linux counts; the places of idle time and of waiting for disks."""


@dataclass
class Load:
    """What was found: the mark for the records, or None."""

    mark: str | None


@contextmanager
def watching(seconds: float = LOOK_S) -> Iterator[Load]:
    """Look before and after the block, whose records take the mark then."""
    load = Load(busy_mark(seconds))
    yield load
    load.mark = load.mark or busy_mark(seconds)


def busy_mark(seconds: float = LOOK_S) -> str | None:
    """Return the mark if others use this machine while we rest for so many seconds."""
    time.sleep(SETTLE_S)
    first = _times()
    time.sleep(seconds)
    last = _times()
    return _by_average() if first is None or last is None else mark_between(first, last)


def mark_between(first: Sequence[int], last: Sequence[int]) -> str | None:
    """Return the mark if others had the CPUs from one reading of `cpu_times` to another."""
    spent = [after - before for before, after in zip(first, last, strict=True)]
    busy = 1 - sum(spent[place] for place in IDLE) / max(1, sum(spent))
    if busy < BUSY_SHARE:
        return None
    return f"{BUSY}: others took {busy:.0%} of its CPUs"


def cpu_times(text: str) -> list[int] | None:
    """Return user, nice, system, idle, iowait, irq, softirq and stolen time of /proc/stat.

    None where the text does not begin as Linux writes it.
    """
    with suppress(ValueError, IndexError):
        times = [int(part) for part in text.splitlines()[0].split()[1:9]]
        return times if len(times) == TIMES else None
    return None


def _times() -> list[int] | None:
    with suppress(OSError):
        return cpu_times(STAT.read_text())
    return None


def _by_average() -> str | None:
    """Report the load average of the last minute, including our own work."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"{BUSY}: load {load:.1f} on {cores} cores" if load >= cores / 2 else None
