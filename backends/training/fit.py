"""Set-up and checks of `fit` before the first step."""

from dataclasses import dataclass
from functools import partial

from pockengine.backends.session import Session
from pockengine.backends.training.batch import DataSource
from pockengine.backends.training.checkpoints import Checkpoints
from pockengine.backends.training.data import open_data
from pockengine.backends.training.early_stopping import VALIDATION, BestEpoch, EarlyStopping
from pockengine.backends.training.history import History
from pockengine.backends.training.judging import evaluate
from pockengine.backends.training.options import FitOptions
from pockengine.backends.training.run import Judge
from pockengine.backends.training.signature import Signature
from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import RuntimeFailure


@dataclass(frozen=True)
class End:
    """End of a training: after an epoch, or after a step, counted from its beginning."""

    epochs: int | None
    steps: int | None

    def __post_init__(self) -> None:
        ends = [end for end in (self.epochs, self.steps) if end is not None]
        if len(ends) != 1 or ends[0] < 1:
            raise RuntimeFailure(
                f"a training ends after epochs={self.epochs} or steps={self.steps}; give one of "
                "them, at least 1"
            )

    def last(self, source: DataSource) -> int | None:
        """Return the number of the last step, if the data determine it."""
        if self.epochs is None or source.batches is None:
            return self.steps
        return self.epochs * source.batches


def judge_of(session: Session, signature: Signature, options: FitOptions) -> Judge | None:
    """Return the evaluator on validation data; None without such data."""
    validation, metrics = options.validation, options.metrics
    none = metrics is None or (isinstance(metrics, list | tuple | dict) and not metrics)
    if validation is None and not none:
        raise RuntimeFailure("metrics judge validation data, and there are none; give validation")
    if validation is None:
        return None
    source = open_data(signature, validation, "evaluate", batch=options.batch)
    return partial(evaluate, session, signature, source, metrics)


def begin(session: Session, place: Checkpoints | None, options: FitOptions) -> History:
    """Set the session to the start of a training, or resume it; return the history so far.

    Without a checkpoint it continues from its present state. RuntimeFailure if that has no rate.
    """
    if options.seed is not None and not 0 <= options.seed < 1 << 32:
        raise RuntimeFailure(f"seed is {options.seed}; give a number from 0 to {(1 << 32) - 1}")
    history = History()
    if place:
        place.check_folder()
    if not options.resume:
        if place:
            place.check_unused()
        session.restart()
    elif place and place.load(session):
        history = place.history(session.steps)
    elif place and options.lr is None and session.course is None:
        raise place.nothing_to_resume()
    if options.seed is not None:
        session.seed = options.seed
    return history


def watch_of(early_stopping: EarlyStopping | int | None, judge: Judge | None) -> BestEpoch | None:
    """Return the early stopping; a number is the patience for the validation loss."""
    if isinstance(early_stopping, int):
        monitor = LOSS if judge is None else f"{VALIDATION}{LOSS}"
        return BestEpoch(EarlyStopping(early_stopping, monitor))
    return BestEpoch(early_stopping) if early_stopping else None
