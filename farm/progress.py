"""One line per long step: its name at the start, its duration at the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

CONSOLE = Console(stderr=True, highlight=False, soft_wrap=True)


class RunningStep:
    """A running step; `detail` is added to its last line."""

    detail = ""

    def __init__(self, title: str, console: Console) -> None:
        self._title = escape(title)
        self._status = console.status(self._title)

    def moved(self, done: int, total: int) -> None:
        """Show the progress of a transfer, if the output is a terminal."""
        self._status.update(f"{self._title}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")

    def say(self, text: str) -> None:
        """Show a detail of the step, if the output is a terminal."""
        self._status.update(f"{self._title}: {escape(text)}")


def say(text: str, console: Console = CONSOLE) -> None:
    """Show a line that announces the next work."""
    console.print(text, markup=False)


@contextmanager
def step(title: str, console: Console = CONSOLE) -> Iterator[RunningStep]:
    """Show a step while it runs: animated on a terminal, otherwise a line at start and end."""
    start = time.monotonic()
    running = RunningStep(title, console)
    if not console.is_terminal:
        console.print(f"{title} ...", markup=False)
    word = "failed after"
    try:
        with running._status:
            yield running
        word = "took"
    finally:
        detail = f" ({running.detail})" if running.detail else ""
        console.print(f"{title}: {word} {time.monotonic() - start:.1f} s{detail}", markup=False)
