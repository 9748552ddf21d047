"""Signals that end a command."""

import signal
import sys
from types import FrameType


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, with the shell's status 143.

    By default it ends it at once, which leaves its temporary folders and workers.
    """
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
