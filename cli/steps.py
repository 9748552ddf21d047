"""Progress of a command: one line for each step, with its time while it runs on a terminal."""

import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

BUILD = ("compiling ", "compiled ")
"""First words of the messages of one step: files that are compiled together."""

TICK_S = 0.5
CLEAR = "\r\x1b[K"


class Steps:
    """A progress callback; thread-safe.

    On a terminal the line of the current step is rewritten with its seconds, and stays when the
    next step begins. Elsewhere each step is one line, without a time, so that logs are alike.
    """

    def __init__(self, stream: TextIO | None = None, width: int = 80) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._width = width
        self._text = self._step = ""
        self._since = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        if self._live:
            self._clock.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        with self._lock:
            self._end()

    def __call__(self, text: str) -> None:
        """Begin a step, or update the text of the current one."""
        step = "build" if text.startswith(BUILD) else text
        with self._lock:
            if step != self._step:
                self._end()
                self._step, self._since = step, time.monotonic()
                if not self._live:
                    print(text, file=self._stream, flush=True)
            self._text = text
            self._draw()

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._live and self._step:
            seconds = f"{time.monotonic() - self._since:6.1f} s"
            room = self._width - len(seconds) - 1
            line = f"{self._text[:room]:{room}}{seconds}"
            print(f"{CLEAR}{line}", end="", file=self._stream, flush=True)

    def _end(self) -> None:
        if self._live and self._step:
            self._draw()
            print(file=self._stream, flush=True)
        self._step = ""
