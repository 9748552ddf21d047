"""Load by other processes, to mark times measured under it, and free memory.

A load average would include our own work of the last minute, so CPU use is measured while we are
idle, before and after the timed block.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pockengine.devices.cgroups import granted_bytes
from pockengine.errors import FarmError

BUSY = "busy machine"
"""Note of a record whose times were measured on a busy machine."""
BUSY_SHARE = 0.1
SETTLE_S, LOOK_S = 0.3, 0.5
"""Frameworks' threads spin for a fifth of a second after their work: that is our own load."""
STAT, MEMORY = Path("/proc/stat"), Path("/proc/meminfo")
TIMES, IDLE = 8, (3, 4)
"""Number of CPU times that Linux reports; positions of idle time and of disk wait."""


@dataclass
class Load:
    """Result: the mark for the records, or None."""

    mark: str | None


@contextmanager
def watching(seconds: float = LOOK_S) -> Iterator[Load]:
    """Measure before and after the block; the yielded `Load` has the mark at the end."""
    load = Load(busy_mark(seconds))
    yield load
    load.mark = load.mark or busy_mark(seconds)


def busy_mark(seconds: float = LOOK_S) -> str | None:
    """Stay idle for `seconds`; return the mark if other processes used the machine."""
    time.sleep(SETTLE_S)
    first = _times()
    time.sleep(seconds)
    last = _times()
    return _by_average() if first is None or last is None else mark_between(first, last)


def mark_between(first: Sequence[int], last: Sequence[int]) -> str | None:
    """Return the mark if other processes used the CPUs between two readings of `cpu_times`."""
    spent = [after - before for before, after in zip(first, last, strict=True)]
    busy = 1 - sum(spent[place] for place in IDLE) / max(1, sum(spent))
    if busy < BUSY_SHARE:
        return None
    return f"{BUSY}: others took {busy:.0%} of its CPUs"


def cpu_times(text: str) -> list[int] | None:
    """Return user, nice, system, idle, iowait, irq, softirq and stolen time of /proc/stat.

    None if the text does not have Linux's format.
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
    """Return the mark by the load average of the last minute, which includes our own work."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"{BUSY}: load {load:.1f} on {cores} cores" if load >= cores / 2 else None


def free_bytes() -> int:
    """Return the bytes available to a new process, by the machine and by a container's limit.

    On macOS, which lacks the figure, all memory.
    """
    try:
        table = MEMORY.read_text(encoding="ascii")
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in table.splitlines():
        if line.startswith("MemAvailable:"):
            available, granted = 1024 * int(line.split()[1]), granted_bytes()
            return available if granted is None else min(available, granted)
    raise FarmError(f"{MEMORY} has no MemAvailable; free memory cannot be read")
