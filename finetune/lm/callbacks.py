"""Progress output of a fine-tuning: losses of held-out texts, and the remaining time."""

import time
from collections.abc import Callable

from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.history import Epoch
from pockengine.backends.training.loop import Step
from pockengine.finetune.lm.judging import Score, judge
from pockengine.finetune.lm.prepare import FineTuneInputs
from pockengine.finetune.lm.rollouts import Rollouts, judge_answers
from pockengine.terminal import Say, duration

WARM_UP, STEPS = 1, 10
"""The first step maps the weights' file; the next ten are timed."""


def judge_held_out(session: Session, prepared: FineTuneInputs, batch: int) -> Score | None:
    """Evaluate the held-out texts or prompts; None if there are none."""
    if prepared.prompts is not None and prepared.prompts.judging:
        return judge_answers(session, prepared.prompts, prepared.tokenizer)
    return None if prepared.held_out is None else judge(session, prepared.held_out, batch)


class HeldOut(Callback):
    """Evaluates held-out texts after each epoch; counts tokens, including sampled answers."""

    def __init__(
        self, prepared: FineTuneInputs, batch: int, say: Say, drawn: Rollouts | None = None
    ) -> None:
        self._prepared, self._batch, self._say, self._drawn = prepared, batch, say, drawn
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
        loss = f"training loss {epoch.figures['loss']:.4f}"
        trained = loss if self._drawn is None else self._drawn.summary()
        assert self._session is not None
        score = judge_held_out(self._session, self._prepared, self._batch)
        judged = "" if score is None else f"; {score}"
        self._say(f"epoch {epoch.number}, step {epoch.step}: {trained}{judged}")
        self._last = time.perf_counter()

    def speed(self) -> float:
        """Text tokens per second of the steps, including the time to sample answers."""
        rows = self._prepared.training
        trained = self._rows * rows.tokens / rows.rows
        tokens = trained if self._drawn is None else self._drawn.tokens
        return tokens / max(self._seconds, 1e-9)


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
