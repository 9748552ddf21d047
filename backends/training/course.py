"""The rates and the position of a training that begins, or that goes on."""

import math
from dataclasses import replace
from numbers import Real

from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.session import Course, Session
from pockengine.backends.training.batch import Source
from pockengine.backends.training.loop import Rates
from pockengine.errors import RuntimeFailure


def settle_rates(
    session: Session,
    source: Source,
    lr: float | Rates | None,
    schedule: str | None,
    warmup: int | None,
    steps: int | None,
) -> Rates:
    """Return the rate of each update, and keep it in the session for its checkpoints.

    What the caller does not say is that of the training that the session goes on with. `steps` is
    the number of the last step, None where it is not known.
    """
    known = session.course
    if known and known.rows and source.rows:
        _check_same(known, source)
    if callable(lr):
        if schedule is not None or warmup is not None:
            raise RuntimeFailure("lr gives the rate of each update; leave schedule and warmup out")
        rates = lr
    else:
        rates = _schedule(session, known, lr, schedule, warmup, steps)
    session.course = None
    if isinstance(rates, RateSchedule):
        session.course = _course(rates, source)
    return rates


def _schedule(
    session: Session,
    known: Course | None,
    lr: float | None,
    kind: str | None,
    warmup: int | None,
    steps: int | None,
) -> RateSchedule:
    if known is None and lr is None:
        raise RuntimeFailure("a training needs a learning rate: give lr")
    if lr is not None and not isinstance(lr, Real):
        raise RuntimeFailure(
            f"lr must be a number, or a function of the update's number, not {type(lr).__name__}"
        )
    updates = math.ceil((steps or 1) / session.artifact.micro_batches)
    begun = known.schedule if known else RateSchedule("constant", 0.0, updates)
    kind = begun.kind if kind is None else kind
    warmup = begun.warmup if warmup is None else warmup
    if known is None and steps is None and kind != "constant":
        raise RuntimeFailure(
            f"a {kind} schedule needs the number of steps, which these data do not say; give "
            "steps, or lr=pockengine.RateSchedule(...)"
        )
    total = max(begun.steps, warmup + 1) if kind == "constant" else begun.steps
    rate = begun.rate if lr is None else float(lr)
    return replace(begun, kind=kind, rate=rate, steps=total, warmup=warmup)


def _course(rates: RateSchedule, source: Source) -> Course:
    how = source.augmentation
    return Course(rates, source.rows, source.shuffled, source.batch, how.flip, how.crop)


def _described(course: Course) -> str:
    order = "shuffled" if course.shuffled else "in order"
    pictures = f"{', flipped' if course.flip else ''}{f', crop {course.crop}' * (course.crop > 0)}"
    return f"{course.rows} rows, {order}, {course.batch} a step{pictures}"


def _check_same(known: Course, source: Source) -> None:
    given = _course(known.schedule, source)
    before = replace(known, batch=known.batch or given.batch)
    if before != given:
        said = [_described(before), _described(given)]
        raise RuntimeFailure(
            f"the training to resume had {said[0]}, and these data are {said[1]}; give the same, "
            "or load the checkpoint into a session and begin a new training"
        )
