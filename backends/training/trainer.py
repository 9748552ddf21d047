"""Training from data by an artifact, which `pockengine.compile` and `pockengine.load` return."""

from pathlib import Path
from typing import Any

from pockengine.backends.artifact import Artifact
from pockengine.backends.augmentation import AS_THEY_ARE, Augmentation
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.backends.switching_report import Switching
from pockengine.backends.training.callbacks import as_callbacks
from pockengine.backends.training.checkpoints import Checkpoints, as_checkpoints
from pockengine.backends.training.course import Wish, settle_rates
from pockengine.backends.training.data import open_data
from pockengine.backends.training.early_stopping import EarlyStopping
from pockengine.backends.training.fit import End, begin, judge_of, watch_of
from pockengine.backends.training.framework_rates import Scheduler, as_rates
from pockengine.backends.training.history import History
from pockengine.backends.training.judging import Scores, evaluate, predict
from pockengine.backends.training.loop import Rates
from pockengine.backends.training.metrics import Metrics
from pockengine.backends.training.progress import progress_callback
from pockengine.backends.training.run import Plan, run
from pockengine.backends.training.signature import Arrays, signature_of
from pockengine.boundary import entry_points


class Trainer:
    """Base of what has an artifact: it keeps one session, which `fit` trains and all others use.

    Data are a dict of arrays of rows [N, ...] by the inputs' names, a tuple of them in the inputs'
    order, or batches one by one: a PyTorch DataLoader, a tf.data.Dataset, any iterable of dicts or
    tuples, or a function that returns one.

    `fit` trains for `epochs`, or up to step number `steps`. Each call is a training of its own, on
    the weights so far and with fresh optimiser states, unless it is to `resume`: from the newest
    checkpoint, or from where the last call ended. Resumed is uninterrupted, bit for bit, given the
    same data.

    - `lr` is the highest rate of a `schedule` ("constant", "linear", "cosine") after `warmup`
      updates; or a function of the update's number from 1: `lambda n: ...`, or `RateSchedule`,
      which has more kinds; or a schedule of torch.optim.lr_scheduler, Keras or optax, which is
      stepped with each update.
    - The `schedule` ends at update `total`, by default that of the last step. A resumed training
      that names no `schedule` and no `total` keeps its own, or if its last step lies beyond,
      follows one that ends there.
    - Arrays are shuffled by `seed` and epoch unless `shuffle` is False; `batch` is their number of
      rows a step where the program takes a range. Batches come in the order of whoever made them. A
      short last batch is dropped where the program takes none.
    - `augment` flips and crops pictures by seed and epoch: `Augmentation(flip=True, crop=4)`.
    - `validation` is judged after each epoch, by `metrics` too: `f(prediction, target)`, averaged
      over rows, or objects with `update`, `compute` and `reset`; a dict names them.
    - `early_stopping` is a patience in epochs with the validation's loss, or an `EarlyStopping`.
    - `checkpoint` is a folder, written at each epoch's end, or `Checkpoints`. A loss that is not
      finite raises TrainingDiverged, or rolls back to a checkpoint. Without one the weights that it
      left are not finite either.
    - `progress` is shown on terminals, unless it is said.
    """

    artifact: Artifact

    def session(self, threads: int = 1) -> Session:
        """Open the artifact on this machine; it must have been compiled for `host`."""
        return open_session(self.artifact, threads)

    @property
    def switching(self) -> Switching | None:
        """How `backend="auto"` chose; None where the backend was named, or is the device's."""
        return self.artifact.switching

    @property
    def trained(self) -> Session:
        """The session that `fit` trains; before it the weights are as compiled."""
        return self._kept(None)

    def fit(
        self,
        data: Any,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        lr: float | Rates | Scheduler | None = None,
        schedule: str | None = None,
        warmup: int | None = None,
        total: int | None = None,
        batch: int | None = None,
        shuffle: bool | None = None,
        augment: Augmentation = AS_THEY_ARE,
        seed: int | None = None,
        validation: Any = None,
        metrics: Metrics = None,
        callbacks: Any = (),
        early_stopping: EarlyStopping | int | None = None,
        checkpoint: Checkpoints | Path | str | None = None,
        resume: bool = False,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> History:
        """Train; return what came of it. The class says what the arguments mean."""
        session, signature = self._kept(threads), signature_of(self.artifact)
        end, place = End(epochs, steps), as_checkpoints(checkpoint)
        wish = Wish(as_rates(lr), schedule, warmup, total)
        source = open_data(
            signature, data, "train", batch=batch, shuffle=shuffle, augmentation=augment
        )
        judge = judge_of(session, signature, validation, metrics, batch)
        watch = watch_of(early_stopping, judge)
        history = begin(session, place, resume, seed)
        rates = settle_rates(session, source, wish, end.last(source))
        watchers = (*as_callbacks(callbacks), *progress_callback(progress, end.last(source)))
        plan = Plan(source, rates, epochs, steps, judge, watch, watchers)
        run(session, plan, history, place)
        return history

    def evaluate(self, data: Any, *, metrics: Metrics = None, threads: int | None = None) -> Scores:
        """Judge the trained weights by loss and metrics over all rows."""
        signature = signature_of(self.artifact)
        source = open_data(signature, data, "evaluate")
        return evaluate(self._kept(threads), signature, source, metrics)

    def predict(self, data: Any, *, threads: int | None = None) -> Arrays:
        """Return the outputs by name, a row [N, ...] for each row of the data."""
        signature = signature_of(self.artifact)
        return predict(self._kept(threads), signature, open_data(signature, data, "predict"))

    def _kept(self, threads: int | None) -> Session:
        """Return the session that is kept, moved to another one for another number of threads."""
        known: Session | None = vars(self).get("_session")
        if known and threads in (None, known.threads):
            return known
        opened = self.session(threads or 1)
        if known:
            opened.take(known)
            known.close()
        vars(self)["_session"] = opened  # beside the fields: what a dataclass is does not change
        return opened


entry_points(Trainer)
