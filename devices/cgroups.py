"""Limits of the control groups that this process is in, as containers set them.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst. Version 1 is not read.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

OWN = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")
UNLIMITED = "max"


def granted_cores() -> float | None:
    """Return how many cores' time the tightest group grants; None without a limit."""
    shares = [share for folder in _folders() if (share := _share(folder)) is not None]
    return min(shares, default=None)


def granted_bytes() -> int | None:
    """Return the memory in bytes that the tightest group still grants; None without a limit.

    Page cache that the kernel gives back first counts as free.
    """
    spare = [left for folder in _folders() if (left := _left(folder)) is not None]
    return min(spare, default=None)


def memory_limit() -> int | None:
    """Return the bytes of memory that the tightest group allows in all; None without a limit."""
    limits = [limit for folder in _folders() if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _folders() -> Iterator[Path]:
    """Yield the folders of this process's group and of the groups around it."""
    with suppress(OSError):
        for line in OWN.read_text(encoding="utf-8").splitlines():
            hierarchy, _, group = line.split(":", 2)
            if hierarchy == "0":
                folder = ROOT / group.lstrip("/")
                yield from (each for each in (folder, *folder.parents) if each.is_relative_to(ROOT))


def _share(folder: Path) -> float | None:
    """Return quota / period of `cpu.max`, both in microseconds."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if quota == UNLIMITED else int(quota) / int(period)
    return None


def _left(folder: Path) -> int | None:
    limit = _limit(folder)
    with suppress(OSError, ValueError):
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        return None if limit is None else max(0, limit - used + _cached(folder))
    return None


def _limit(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        text = (folder / "memory.max").read_text(encoding="ascii").strip()
        return None if text == UNLIMITED else int(text)
    return None


def _cached(folder: Path) -> int:
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "inactive_file":
                return int(count)
    return 0
