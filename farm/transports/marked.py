"""Output after a mark: output of a login shell or client is dropped."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from pockengine.errors import JobFailed

MOST_BEFORE = 1 << 20
"""Bytes that a login shell may print of its own."""


@dataclass
class OutputStream:
    """One stream of a command: the data after the mark; JobFailed if there is too much."""

    what: str
    mark: bytes
    limit: int
    write: Callable[[bytes], object]
    before: bytearray = field(default_factory=bytearray)
    started: bool = False
    size: int = 0

    def take(self, data: bytes) -> None:
        """Take what arrived."""
        if not self.started:
            self.before += data
            before, mark, data = bytes(self.before).partition(self.mark)
            if not mark:
                self._within(len(before), MOST_BEFORE)
                return
            self.started, self.before = True, bytearray(before)
        self.size += len(data)
        self._within(self.size, self.limit)
        self.write(data)

    def _within(self, size: int, limit: int) -> None:
        if size > limit:
            raise JobFailed(f"{self.what} printed more than {limit} bytes and was stopped")


def marking(mark: str, text: str) -> str:
    """Return POSIX text that prints a mark on both streams, then runs `text`."""
    word = shlex.quote(mark)
    return f"echo {word}; echo {word} >&2; {text}"


def quiet(text: str) -> str:
    """Return a text whose commands get an empty standard input."""
    return f"exec < /dev/null; {text}"
