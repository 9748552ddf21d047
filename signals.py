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
    `__del__`. Here an exit that nothing handles any more is raised again until the block ends. An
    ignored SIGINT, as in a background job, stays ignored. Only for the main thread, as the last
    block of a process: no garbage collection visits its objects afterwards.
    """
    ending = _Ending()
    chosen = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, ending.on_signal) for one in (*chosen, signal.SIGALRM)}
    hook, sys.unraisablehook = sys.unraisablehook, ending.on_unraisable
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for one, handler in before.items():
            signal.signal(one, handler)
        gc.freeze()  # Python's exit would visit each object of a model several times: seconds


class _Ending:
    """The handlers of one block; `exit` is what it ends by, once a signal has arrived."""

    def __init__(self) -> None:
        self.exit: SystemExit | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Raise the exit; SIGALRM does so again unless the block unwinds."""
        if number != signal.SIGALRM:
            self.exit = SystemExit(128 + number)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        elif self.exit is None or self._unwinds():
            return
        raise self.exit

    def _unwinds(self) -> bool:
        """Whether the interrupted code handles the exit, or what was raised meanwhile."""
        error = sys.exc_info()[1]
        while error is not None and error is not self.exit:
            error = error.__context__
        return error is not None

    def on_unraisable(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Print an exception that Python ignores, unless it is the exit."""
        if self.exit is None or ignored.exc_value is not self.exit:
            sys.__unraisablehook__(ignored)
