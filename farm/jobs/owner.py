"""The process that owns a lease, and whether it is alive.

On the same machine, a process id with its start time identifies a process uniquely. On another
machine only its heartbeat is visible: the counter must grow within a timeout of the watcher's own
clock, so no clocks are compared.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

BEAT_S = 5.0
EXPIRY_S = 30.0  # six beats; a database that is down longer stops the watchers too


@dataclass(frozen=True)
class Owner:
    """A client of the farm in one process; `label` is its human-readable name."""

    owner: str
    host: str
    pid: int
    started: int
    label: str

    @staticmethod
    def here(label: str = "") -> "Owner":
        """Return a new owner for this process."""
        pid = os.getpid()
        text = label or f"{_user()}@{socket.gethostname()}:{pid}"
        return Owner(token_hex(8), this_host(), pid, started=start_time(pid) or 0, label=text)

    def columns(self) -> dict[str, object]:
        """Return the owner as columns of a row."""
        return {
            "owner": self.owner,
            "host": self.host,
            "pid": self.pid,
            "started": self.started,
            "label": self.label,
        }


@dataclass
class HeartbeatWatch:
    """Observed heartbeats of other clients: the last count, and when it last grew."""

    expiry_s: float = EXPIRY_S
    seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def is_gone(self, row: Mapping[str, Any]) -> bool:
        """Whether a row's owner is dead: by its process on this machine, by silence elsewhere."""
        if row["host"] == this_host():
            return bool(start_time(row["pid"]) != row["started"])
        now = time.monotonic()
        beat, since = self.seen.get(row["owner"], (-1, now))
        if row["beat"] != beat:
            self.seen[row["owner"]] = (row["beat"], now)
            return False
        return now - since > self.expiry_s


def this_host() -> str:
    """Identify this boot of this machine, and the process namespace (container)."""
    boot, space = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()}/{boot}/{space}"


def start_time(pid: int) -> int | None:
    """Return a process's start time in kernel ticks since boot; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may be any text; state is the 1st field after it, start the 20th.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _user() -> str:
    return os.environ.get("USER") or str(os.getuid())
