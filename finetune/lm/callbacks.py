"""Progress output of a fine-tuning: losses of held-out texts, and the remaining time."""

import time
from collections.abc import Callable

from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.finetune.lm.judging import judge
from pockengine.finetune.lm.prepare import FineTuneInputs
from pockengine.terminal import Say, duration

WARM_UP, STEPS = 1, 10
"""The first step maps the weights' file; the next ten are timed."""


class HeldOut(Callback):
    """Evaluates held-out texts after each epoch, and counts tokens."""

    def __init__(self, prepared: FineTuneInputs, batch: int, say: Say) -> None:
        self._prepared, self._batch, self._say = prepared, batch, say
        self._session: Session | None = None
        self._rows, self._seconds, self._last = 0, 0.0, 0.0

    def on_begin(self, session: Session) -> None:
        """Start the clock."""
        self._session, self._last = session, time.perf_counter()

    def on_step(self, step: Step) -> None:
        """Count a step's rows and its time."""
        now = time.perf_counter()
        self._rows += step.rows
        self._seconds += now - self._last
        self._last = now

    def on_epoch(self, epoch: Epoch) -> None:
        """Print the epoch's losses."""
        text = f"epoch {epoch.number}, step {epoch.step}: training loss {epoch.figures['loss']:.4f}"
        held_out = self._prepared.held_out
        if self._session is not None and held_out is not None:
            text += f"; {judge(self._session, held_out, self._batch)}"
        self._say(text)
        self._last = time.perf_counter()

    def speed(self) -> float:
        """Text tokens per second, over the steps only."""
        rows = self._prepared.training
        return self._rows * rows.tokens / rows.rows / max(self._seconds, 1e-9)


class Estimate(Callback):
    """Prints the time of a step and of the remaining steps, once, after the first few."""

    def __init__(
        self, steps: int, say: Say, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._steps, self._say, self._clock = steps, say, clock
        self._done, self._begun = 0, 0.0

    def on_step(self, step: Step) -> None:
        """Start the clock after the first step, and stop it STEPS later."""
        self._done += 1
        if self._done == WARM_UP:
            self._begun = self._clock()
        if self._done == WARM_UP + STEPS and step.number < self._steps:
            seconds = (self._clock() - self._begun) / STEPS
            left = seconds * (self._steps - step.number)
            self._say(f"{seconds:.3g} s per step: {duration(left)} for the remaining steps")
