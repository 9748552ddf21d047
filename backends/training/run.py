"""One training from first to last step: reports, validation, checkpoints, early stopping."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pockengine.backends.session import Session
from pockengine.backends.training.batch import Batch, DataSource
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.checkpoints import BEST, Checkpoints, Log
from pockengine.backends.training.early_stopping import VALIDATION, BestEpoch
from pockengine.backends.training.history import Epoch, History
from pockengine.backends.training.interruption import signals_deferred
from pockengine.backends.training.judging import Scores
from pockengine.backends.training.loop import Rates, Step, train
from pockengine.boundary import theirs
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import PockEngineError, RuntimeFailure, TrainingDiverged

ROLLBACKS = 3
"""Maximum rollbacks without a checkpoint in between; PE_ROLLBACKS of the runner."""

SLICE_S = 0.1
"""Sleep in slices of this many seconds: Python resumes a sleep after a signal."""

Judge = Callable[[], Scores]


@dataclass(frozen=True)
class Plan:
    """A training's data, end, and observers."""

    source: DataSource
    rates: Rates
    epochs: int | None
    until: int | None
    judge: Judge | None = None
    watch: BestEpoch | None = None
    callbacks: Sequence[Callback] = ()


def run(session: Session, plan: Plan, history: History, place: Checkpoints | None) -> None:
    """Train by a plan, and record it in the history.

    A signal ends the training after the current step, and is raised again after saving.
    """
    with tempfile.TemporaryDirectory(prefix="pockengine-") as folder:
        best = place.path(BEST) if place else Path(folder) / BEST
        with signals_deferred() as caught:
            _Run(session, plan, history, place=place, best=best, caught=caught).go()


@dataclass
class _Run:
    """A running training. `best` is the path of the best epoch, `caught` the signals."""

    session: Session
    plan: Plan
    history: History
    place: Checkpoints | None
    best: Path
    caught: Sequence[int]
    _log: Log | None = field(default=None, init=False)
    _rollbacks: int = field(default=0, init=False)
    _saved: int = field(default=-1, init=False)
    _begun: float = field(default=0.0, init=False)

    def go(self) -> None:
        """Train to the end."""
        try:
            self._begin()
            self._go_on()
            if not self.caught:
                self._finish()
            self._save()
            if not self.caught:
                self._restore()
        finally:
            self._end()

    def _begin(self) -> None:
        if self.place:
            self._log = self.place.begin(self.session, self.history)
            self._saved = self.session.steps
        if self.plan.watch:
            for epoch in self.history.epochs:
                self.plan.watch.weigh(epoch)
        for callback in self.plan.callbacks:
            theirs(callback.on_begin, self.session)
        self._begun = time.perf_counter()
        self._stop_if_patience_ended()

    def _go_on(self) -> None:
        """Run the loop; restart after a divergence, if rollback is enabled."""
        while True:
            try:
                self._steps()
            except TrainingDiverged:
                if not self._rolls_back():
                    raise
                self._roll_back()
            else:
                return

    def _steps(self) -> None:
        plan = self.plan
        if self.history.stopped:
            return
        seed = self.session.seed
        batches = plan.source.training(seed, self.session.steps, plan.epochs)
        for step in train(
            self.session, self._paused(batches), plan.rates, seed=seed, until=plan.until
        ):
            self._take(step)
            if self.caught or self.history.stopped:
                return

    def _paused(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield each batch once no callback makes it wait; none after a signal."""
        for batch in batches:
            try:
                self._pause()
            except PockEngineError:
                self._save()
                raise
            if self.caught:
                return
            yield batch

    def _pause(self) -> None:
        for callback in self.plan.callbacks:
            while not self.caught and (seconds := callback.wait()) > 0:
                end = time.monotonic() + seconds
                while not self.caught and (left := end - time.monotonic()) > 0:
                    time.sleep(min(left, SLICE_S))

    def _take(self, step: Step) -> None:
        """Record a step, end its epoch, and save."""
        self.history.steps.append(step)
        if self._log:
            self._log.write(step)
        self._tell("on_step", step)
        if step.ends_epoch:
            self._end_epoch(whole=True)
        if self.place and self.place.is_due(step):
            self._save()

    def _end_epoch(self, whole: bool) -> None:
        last, now = self.history.steps[-1], time.perf_counter()
        figures = {
            LOSS: self.history.last_loss(),
            "rate": last.rate,
            "seconds": now - self._begun,
            **self._validation(),
        }
        epoch = Epoch(last.epoch, last.number, figures, whole)
        self._begun = now
        self.history.epochs.append(epoch)
        if self._log:
            self._log.write(epoch)
        watch = self.plan.watch
        if watch and watch.weigh(epoch) and watch.rule.restore:
            self.session.save(self.best)
        self._tell("on_epoch", epoch)
        self._stop_if_patience_ended()

    def _validation(self) -> dict[str, float]:
        if self.plan.judge is None:
            return {}
        scores = self.plan.judge()
        loss = {} if scores.loss is None else {LOSS: scores.loss}
        return {f"{VALIDATION}{name}": value for name, value in {**loss, **scores.metrics}.items()}

    def _tell(self, event: str, report: Step | Epoch) -> None:
        """Notify all callbacks; one that returns True ends the training."""
        for callback in self.plan.callbacks:
            if theirs(getattr(callback, event), report):
                number = report.number if isinstance(report, Step) else report.step
                self.history.stopped = f"{callback.name} ended it after step {number}"

    def _stop_if_patience_ended(self) -> None:
        watch = self.plan.watch
        if watch and watch.best and watch.over:
            rule, best = watch.rule, watch.best
            self.history.stopped = (
                f"{rule.monitor} was best in epoch {best.number}, {rule.patience} epochs ago"
            )

    def _save(self) -> None:
        """Write a checkpoint unless this step has one."""
        if self.place and self._log and self._saved != self.session.steps:
            self._log.sync()
            self.place.save(self.session)
            self._saved, self._rollbacks = self.session.steps, 0

    def _rolls_back(self) -> bool:
        enabled = self.place is not None and self.place.on_nan == "rollback"
        return enabled and self._rollbacks < ROLLBACKS

    def _roll_back(self) -> None:
        """Load the last checkpoint, but keep the position in the data: the same batch would fail
        again.
        """
        steps = self.session.steps
        if self.place is None or not self.place.load(self.session):
            raise RuntimeFailure("there is no checkpoint to roll back to; it is gone")
        self.session.steps = steps
        self._rollbacks += 1

    def _finish(self) -> None:
        """Close an epoch in which the training ended."""
        steps, epochs = self.history.steps, self.history.epochs
        if steps and (not epochs or epochs[-1].step < steps[-1].number):
            self._end_epoch(whole=False)

    def _restore(self) -> None:
        watch = self.plan.watch
        if watch and watch.best and watch.rule.restore:
            self.session.load(self.best)

    def _end(self) -> None:
        if self._log:
            self._log.close()
        for callback in self.plan.callbacks:
            theirs(callback.on_end)
