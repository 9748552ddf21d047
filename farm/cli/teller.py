"""Output of `run` while a batch runs."""

import time
from collections.abc import Mapping
from threading import Lock

from pockengine.farm.cli.base import CONSOLE
from pockengine.farm.jobs.batch import JobVerdict

QUIET_S = 30.0
"""Seconds without output after which each board's current task is printed again."""


class Teller:
    """Prints output lines, a line per job whose state has changed, and signs of life.

    `doing` is each board's task and its start.
    """

    def __init__(self, doing: Mapping[str, tuple[str, float]]) -> None:
        self._doing = doing
        self._states: dict[str, str] = {}
        self._printed = time.monotonic()
        self._lock = Lock()

    def say(self, text: str) -> None:
        """Print a line; thread-safe."""
        with self._lock:
            self._printed = time.monotonic()
            CONSOLE.print(text, soft_wrap=True)

    def __call__(self, verdicts: list[JobVerdict]) -> None:
        """Print changes since the last call, or the current tasks if there are none."""
        for one in verdicts:
            text = one.describe()
            if one.attempts and self._states.get(one.name) != text:
                self.say(text)
            self._states[one.name] = text
        now = time.monotonic()
        if now - self._printed >= QUIET_S:
            for board, (text, since) in dict(self._doing).items():
                self.say(f"{board}: {text} (for {now - since:.0f} s)")
