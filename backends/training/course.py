"""The rates and the position of a new or resumed training."""

import math
from dataclasses import dataclass, replace
from numbers import Real

from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Course, Session
from pockengine.backends.training.batch import DataSource
from pockengine.backends.training.loop import Rates
from pockengine.errors import RuntimeFailure


@dataclass(frozen=True)
class Wish:
    """The caller's rate settings; None means those of the resumed training.

    `total` is the schedule's last update.
    """

    lr: float | Rates | None = None
    schedule: str | None = None
    warmup: int | None = None
    total: int | None = None

    def __post_init__(self) -> None:
        shape = (self.schedule, self.warmup, self.total)
        if callable(self.lr) and any(each is not None for each in shape):
            raise RuntimeFailure(
                "lr gives the rate of each update; leave schedule, warmup and total out"
            )
        if self.lr is not None and not callable(self.lr) and not isinstance(self.lr, Real):
            raise RuntimeFailure(
                "lr must be a number, or a function of the update's number, not "
                f"{type(self.lr).__name__}"
            )
        if self.total is not None and self.total < 1:
            raise RuntimeFailure(f"total={self.total}: a schedule has at least one update")


def settle_rates(session: Session, source: DataSource, wish: Wish, steps: int | None) -> Rates:
    """Return the rate of each update, and store it in the session for its checkpoints.

    Settings that the caller omits are those of the session's training. `steps` is the number of the
    last step, None if unknown.
    """
    known = session.course
    if known and known.rows and source.rows:
        _check_same(known, source)
    rates = wish.lr if callable(wish.lr) else _schedule(session, known, wish, steps)
    session.course = None
    if isinstance(rates, RateSchedule):
        session.course = _course(rates, source)
    return rates


def _schedule(
    session: Session, known: Course | None, wish: Wish, steps: int | None
) -> RateSchedule:
    assert not callable(wish.lr)  # as the caller has checked
    if known is None and wish.lr is None:
        raise RuntimeFailure("a training needs a learning rate: give lr (--lr)")
    if wish.total is not None and wish.schedule == "constant":
        raise RuntimeFailure("a constant schedule has no end: leave total out, or name another one")
    begun = known.schedule if known else RateSchedule("constant", 0.0, 1)
    kind = begun.kind if wish.schedule is None else wish.schedule
    warmup = begun.warmup if wish.warmup is None else wish.warmup
    total = _total(session, known, wish, steps)
    if kind == "constant":
        total = max(total or 1, warmup + 1)
    if total is None:
        raise RuntimeFailure(
            f"a {kind} schedule needs the number of its updates, which these data do not say; "
            "give total or steps, or lr=pockengine.RateSchedule(...)"
        )
    rate = begun.rate if wish.lr is None else float(wish.lr)
    return replace(begun, kind=kind, rate=rate, steps=total, warmup=warmup)


def _total(session: Session, known: Course | None, wish: Wish, steps: int | None) -> int | None:
    """Return the schedule's last update: the caller's, or the training's last step.

    A resumed training whose schedule the caller does not name keeps its total, unless it ends
    later: then rates would stay constant after the old end.
    """
    if wish.total is not None:
        return wish.total
    last = None if steps is None else math.ceil(steps / session.artifact.micro_batches)
    if known is None:
        return last
    before = None if known.schedule.kind == "constant" else known.schedule.steps
    if last is None or (steps or 0) <= session.steps:  # unknown, or nothing is left to train
        return before
    return last if wish.schedule is not None or before is None else max(last, before)


def _course(rates: RateSchedule, source: DataSource) -> Course:
    how = source.augmentation
    return Course(
        rates, source.rows, source.shuffled, batch=source.batch, flip=how.flip, crop=how.crop
    )


def _described(course: Course) -> str:
    order = "shuffled" if course.shuffled else "in order"
    pictures = f"{', flipped' if course.flip else ''}{f', crop {course.crop}' * (course.crop > 0)}"
    return f"{course.rows} rows, {order}, {course.batch} a step{pictures}"


def _check_same(known: Course, source: DataSource) -> None:
    current = _course(known.schedule, source)
    before = replace(known, batch=known.batch or current.batch)
    if before != current:
        descriptions = [_described(before), _described(current)]
        raise RuntimeFailure(
            f"the training to resume had {descriptions[0]}, and these data are {descriptions[1]}; "
            "give the same, or load the checkpoint into a session and begin a new training"
        )
