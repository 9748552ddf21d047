"""Options of a training, besides its data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from pockengine.arguments import with_keywords
from pockengine.backends.augmentation import AS_THEY_ARE, Augmentation
from pockengine.backends.rate_schedule import PLAIN
from pockengine.backends.training.checkpoints import Checkpoints
from pockengine.backends.training.early_stopping import EarlyStopping
from pockengine.backends.training.framework_rates import Scheduler
from pockengine.backends.training.loop import Rates
from pockengine.backends.training.metrics import Metrics
from pockengine.compiler.option import option


class FitKeywords(TypedDict, total=False):
    """The fields of FitOptions as keywords of `fit`, for type checkers."""

    epochs: int | None
    steps: int | None
    lr: float | Rates | Scheduler | None
    schedule: str | None
    warmup: int | None
    total: int | None
    batch: int | None
    shuffle: bool | None
    augment: Augmentation
    seed: int | None
    validation: Any
    metrics: Metrics
    callbacks: Any
    early_stopping: EarlyStopping | int | None
    checkpoint: Checkpoints | Path | str | None
    resume: bool
    threads: int | None
    progress: bool | None


@dataclass(frozen=True)
class FitOptions:
    """How `fit` trains: for `epochs`, or up to step number `steps`.

    Each call is a new training, on the current weights and with fresh optimizer states, unless it
    `resume`s the newest checkpoint, or the last call. Given the same data, a resumed training
    equals an uninterrupted one bit for bit.

    - `lr` is the highest rate of a `schedule` ("constant", "linear", "cosine") after `warmup`
      updates; or a function of the update's number from 1: `lambda n: ...`, or `RateSchedule`,
      which has more kinds; or a schedule of torch.optim.lr_scheduler, Keras or optax, which is
      stepped with each update.
    - The `schedule` ends at update `total`, by default that of the last step. A resumed training
      that names no `schedule` and no `total` keeps its own, or if its last step lies beyond,
      follows one that ends there.
    - Arrays are shuffled by `seed` and epoch unless `shuffle` is False; `batch` is the number
      of rows per step if the program's batch size is variable. Batches that are passed as such keep
      their order. A short last batch is dropped if the batch size is fixed.
    - `augment` flips and crops pictures by seed and epoch: `Augmentation(flip=True, crop=4)`.
    - `validation` is evaluated after each epoch, also by `metrics`: `f(prediction, target)`,
      averaged over rows, or objects with `update`, `compute` and `reset`; a dict names them.
    - `early_stopping` is a patience in epochs with the validation's loss, or an `EarlyStopping`.
    - `checkpoint` is a folder, written at each epoch's end, or `Checkpoints`. A loss that is not
      finite raises TrainingDiverged, or rolls back to a checkpoint. Without one the diverged
      weights are lost.
    - `progress` is shown on terminals by default.
    """

    epochs: int | None = option(None, "Passes over all rows; or give --steps.")
    steps: int | None = option(None, "Number of the last step.")
    lr: float | Rates | Scheduler | None = option(
        None, "Maximum rate; not needed to --resume.", reads=float
    )
    schedule: str | None = option(None, f"{', '.join(PLAIN)}; default: constant.", names=PLAIN)
    warmup: int | None = option(None, "Updates until the maximum rate.", least=0)
    total: int | None = option(None, "Last update of the schedule; default: the training's.")
    batch: int | None = option(None, "Rows per step, if the program has a range of sizes.")
    shuffle: bool | None = option(None)
    augment: Augmentation = option(AS_THEY_ARE)
    seed: int | None = option(None, "Seed of row order and dropout; default: 0.", reads=int)
    validation: Any = option(None)
    metrics: Metrics = option(None)
    callbacks: Any = option(())
    early_stopping: EarlyStopping | int | None = option(None)
    checkpoint: Checkpoints | Path | str | None = option(None)
    resume: bool = option(False, "Resume from the newest checkpoint.")
    threads: int | None = option(None)
    progress: bool | None = option(None)

    def replaced(self, **keywords: Unpack[FitKeywords]) -> Self:
        """Return options with other values; ArgumentError for an unknown name or a wrong type."""
        return with_keywords("fit", self, keywords, FitKeywords)
