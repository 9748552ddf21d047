"""Training from data, for artifacts returned by `pockengine.compile` and `pockengine.load`."""

from dataclasses import dataclass, field
from typing import Any, Unpack

from pockengine.backends.artifact import Artifact
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.backends.switching_report import Switching
from pockengine.backends.training.callbacks import as_callbacks
from pockengine.backends.training.checkpoints import as_checkpoints
from pockengine.backends.training.course import Wish, settle_rates
from pockengine.backends.training.data import open_data
from pockengine.backends.training.fit import End, begin, judge_of, watch_of
from pockengine.backends.training.framework_rates import as_rates
from pockengine.backends.training.history import History
from pockengine.backends.training.judging import Scores, evaluate, predict
from pockengine.backends.training.metrics import Metrics
from pockengine.backends.training.options import FitKeywords, FitOptions
from pockengine.backends.training.progress import progress_callback
from pockengine.backends.training.run import Plan, run
from pockengine.backends.training.signature import Arrays, signature_of
from pockengine.boundary import entry_points


@dataclass(frozen=True, repr=False)
class Trainer:
    """Base class of objects with an artifact: it owns one session, which `fit` trains and the other
    methods use.

    Data are a dict of arrays of rows [N, ...] by the inputs' names, a tuple of them in the inputs'
    order, or batches one by one: a PyTorch DataLoader, a tf.data.Dataset, any iterable of dicts or
    tuples, or a function that returns one.
    """

    artifact: Artifact
    _sessions: list[Session] = field(default_factory=list, init=False, compare=False)
    """The open session, once one is used: the only mutable state."""

    def session(self, threads: int = 1) -> Session:
        """Open the artifact on this machine; it must have been compiled for `host`."""
        return open_session(self.artifact, threads)

    @property
    def switching(self) -> Switching | None:
        """How `backend="auto"` chose; None if the backend was named, or is the device's default."""
        return self.artifact.switching

    @property
    def trained(self) -> Session:
        """The session that `fit` trains; before training, its weights are as compiled."""
        return self._open_session(None)

    def fit(
        self,
        data: Any,
        *,
        options: FitOptions | None = None,
        **overrides: Unpack[FitKeywords],
    ) -> History:
        """Train; return the history. FitOptions documents the keywords."""
        wish = (options or FitOptions()).replaced(**overrides)
        session, signature = self._open_session(wish.threads), signature_of(self.artifact)
        end, place = End(wish.epochs, wish.steps), as_checkpoints(wish.checkpoint)
        rates = Wish(as_rates(wish.lr), wish.schedule, wish.warmup, wish.total)
        source = open_data(
            *(signature, data, "train"),
            batch=wish.batch,
            shuffle=wish.shuffle,
            augmentation=wish.augment,
        )
        judge = judge_of(session, signature, wish)
        watch = watch_of(wish.early_stopping, judge)
        history = begin(session, place, wish)
        last = end.last(source)
        watchers = (*as_callbacks(wish.callbacks), *progress_callback(wish.progress, last))
        plan = Plan(
            *(source, settle_rates(session, source, rates, last)),
            epochs=wish.epochs,
            until=wish.steps,
            judge=judge,
            watch=watch,
            callbacks=watchers,
        )
        run(session, plan, history, place)
        return history

    def evaluate(self, data: Any, *, metrics: Metrics = None, threads: int | None = None) -> Scores:
        """Evaluate the trained weights: loss and metrics over all rows."""
        signature = signature_of(self.artifact)
        source = open_data(signature, data, "evaluate")
        return evaluate(self._open_session(threads), signature, source, metrics)

    def predict(self, data: Any, *, threads: int | None = None) -> Arrays:
        """Return the outputs by name, a row [N, ...] per row of the data."""
        signature = signature_of(self.artifact)
        return predict(
            self._open_session(threads), signature, open_data(signature, data, "predict")
        )

    def _open_session(self, threads: int | None) -> Session:
        """Return the open session; for another number of threads, move it to a new one."""
        known = self._sessions[0] if self._sessions else None
        if known and threads in (None, known.threads):
            return known
        opened = self.session(1 if threads is None else threads)
        if known:
            opened.take(known)
            known.close()
        self._sessions[:] = [opened]
        return opened


entry_points(Trainer)
