"""Progress of a long run: cells done, cells left, and an estimate."""

import threading
import time
from collections.abc import Callable

from pockengine.farm.bench.paper.cells import Cell, PaperPlan
from pockengine.terminal import Say, duration


class CellProgress:
    """Counts cells; the estimate learns from measured times. Threads may share it."""

    def __init__(
        self, plan: PaperPlan, say: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the clock."""
        self.plan, self.say, self._clock = plan, say, clock
        self._begin, self._lock = clock(), threading.Lock()
        self._left = set(plan.cells)

    def done(self, cell: Cell, text: str) -> None:
        """Report that a cell has its figure, or why it has none."""
        with self._lock:
            self._left.discard(cell)
            total, left = len(self.plan.cells), len(self._left)
            more = f"{left} left, about {duration(self.seconds_left())}" if left else "none left"
            self.say(f"{total - left} of {total} done, {more}: {cell}: {text}")

    def seconds_left(self) -> float:
        """Estimate the remaining time: the plan's estimate, scaled by the speed so far."""
        spent = self._clock() - self._begin
        done = self.plan.without(tuple(self._left))
        left = self.plan.without(done.cells).seconds
        return left * spent / done.seconds if done.cells else left
