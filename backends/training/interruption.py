"""Signals during a training: they end it after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_deferred() -> Iterator[list[int]]:
    """Defer SIGINT and SIGTERM, and raise the first of them again at the end.

    The current step is then counted and can be saved. A second signal takes effect at once. Nothing
    is deferred outside the main thread, which alone receives signals in Python.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def remember(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, remember) for each in SIGNALS}
    try:
        yield caught
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if caught:
        signal.raise_signal(caught[0])
