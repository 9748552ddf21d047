"""Run a program in a Linux control group, which counts and limits all its memory.

Resident pages of the program and of files that it maps or reads are counted: unlike a process's
resident set, the figure includes the page cache.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError

JOIN = 'echo $$ > "$0" && exec "$@"'
"""The shell joins the group named by its first argument, and executes the remaining arguments."""
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """A control group's files: the limit, the peak, and the processes."""

    folder: Path
    limit: str
    peak: str

    def read_peak(self) -> int:
        """Return the peak of charged memory, in bytes."""
        return int((self.folder / self.peak).read_text())


@contextmanager
def memory_group(limit: int | None) -> Iterator[Group]:
    """Create a group for this block; FinetuneError if control groups cannot be created."""
    version_1 = (V1 / "memory.limit_in_bytes").is_file()
    root = V1 if version_1 else V2
    names = (
        ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        if version_1
        else ("memory.max", "memory.peak")
    )
    group = Group(root / f"pockengine-{os.getpid()}", *names)
    try:
        group.folder.mkdir()
    except OSError as error:
        raise FinetuneError(
            f"{group.folder} cannot be made: {error}; run as root where {root} is writable"
        ) from error
    try:
        if limit is not None:
            (group.folder / group.limit).write_text(str(limit))
        yield group
    finally:
        group.folder.rmdir()


@dataclass(frozen=True)
class LimitedRun:
    """Lines that a program printed as JSON, and its peak memory including page cache."""

    lines: Sequence[dict[str, Any]]
    peak_bytes: int


def run_limited(command: Sequence[str], limit: int | None, files: Sequence[Path]) -> LimitedRun:
    """Run a program within `limit` bytes; the page cache of `files` is dropped first.

    FinetuneError if it fails: it is killed if it needs more than the limit at once.
    """
    for path in files:
        _drop_cache(path)
    with memory_group(limit) as group:
        processes = str(group.folder / "cgroup.procs")
        joined = ["sh", "-c", JOIN, processes, *command]
        done = subprocess.run(joined, capture_output=True, check=False)
        peak = group.read_peak()
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip()[-300:]
        raise FinetuneError(
            f"{command[0]} ended with {done.returncode} within "
            f"{'no limit' if limit is None else f'{limit:,} bytes'}: {text or 'no message'}"
        )
    return LimitedRun([json.loads(line) for line in done.stdout.splitlines()], peak)


def _drop_cache(path: Path) -> None:
    """Drop a file's pages from the cache: cached pages are charged to their first reader."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
