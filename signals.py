"""Signals that end a command."""

import signal
import sys
from types import FrameType


def end_on_sigterm() -> None:
    """Handle SIGTERM as Ctrl-C: unwind, and exit with the status 143.

    By default it ends the process at once, which leaves its temporary folders and workers.
    """
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
