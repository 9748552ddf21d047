"""Signals that end a command."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AGAIN_S = 0.1


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """End the block on SIGINT or SIGTERM: unwind, and exit with the status 130 or 143.

    By default SIGTERM ends the process at once, which leaves its temporary folders and workers, and
    SIGINT raises a KeyboardInterrupt that Python ignores in callbacks of weak references and in
    `__del__`. Here a swallowed exit is raised again until the block ends. An ignored SIGINT, as in
    a background job, stays ignored. Only for the main thread, as the last block of a process: no
    garbage collection visits its objects afterwards.
    """
    ending = _Ending()
    chosen = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, ending.on_signal) for one in (*chosen, signal.SIGALRM)}
    hook, sys.unraisablehook = sys.unraisablehook, ending.on_unraisable
    try:
        yield
    finally:
        ending.over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)
        gc.freeze()  # Python's exit would visit each object of a model several times: seconds


class _Ending:
    """The handlers of one block; `over` when it has ended, `status` once a signal has arrived."""

    def __init__(self) -> None:
        self.over = False
        self.status = 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Raise the exit; SIGALRM raises that of the signal before it."""
        if number != signal.SIGALRM:
            self.status = 128 + number
        if self.status:
            raise _Exit(self)

    def on_unraisable(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Print an exception that Python ignores, unless it is the exit."""
        if not isinstance(ignored.exc_value, _Exit):
            sys.__unraisablehook__(ignored)


class _Exit(SystemExit):
    """An exit that returns after AGAIN_S if it is deleted before the block ends."""

    def __init__(self, ending: _Ending) -> None:
        super().__init__(ending.status)
        self._ending = ending

    def __del__(self) -> None:
        if not self._ending.over:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
