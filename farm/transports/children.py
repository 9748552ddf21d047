"""The child processes of this one, by the kernel's list (Linux)."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def kill_children() -> None:
    """Kill all child processes, of every thread; their threads then see that they have ended."""
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for pid in task.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
