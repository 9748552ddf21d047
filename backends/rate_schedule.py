"""Learning-rate schedules for training loops in Python, identical to the runner's (pe_schedule.h).

    schedule = RateSchedule("cosine", rate=0.1, steps=1000, warmup=50)
    session.train_step(inputs, lr=schedule(session.steps + 1))

The rate is an input of each step, so the host may compute it in any way: by PyTorch's
ReduceLROnPlateau, which follows a validation loss, or by a user's function.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pockengine.errors import RuntimeFailure

MOST_MILESTONES = 8
"""Maximum number of milestones, as in the runner."""


@dataclass(frozen=True)
class RateSchedule:
    """The rate at each step of a run of `steps`, counted from 1; `rate` is the maximum.

    It rises linearly over `warmup` steps. With n the number of
    earlier steps after the warmup, and p = n / (steps - warmup), it is then `rate` times

        constant     1
        linear       1 - p
        cosine       (1 + cos(pi p)) / 2 (arXiv 1608.03983, without restarts)
        polynomial   (1 - p)^factor
        exponential  factor^n
        step         factor^floor(n / period)
        multistep    factor^(how many milestones are at most n)
        restarts     a cosine over each period, the next one being `factor` times as long
        cyclic       up from `factor` over a period and down again, along straight lines
        one-cycle    a cosine up from 1/25 until p = factor, then down to 1/250000, which it reaches
                     at the last step (arXiv 1708.07120)

    No step has the rate 0.
    """

    kind: str
    rate: float
    steps: int
    warmup: int = 0
    factor: float | None = None
    period: int | None = None
    milestones: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RuntimeFailure(f"unknown schedule {self.kind!r}; known: {', '.join(KINDS)}")
        if not 0 <= self.rate < math.inf:
            raise RuntimeFailure(f"the rate must be a number of at least 0, not {self.rate:g}")
        if not 0 <= self.warmup < self.steps:
            raise RuntimeFailure(f"{self}: warmup must be at least 0 and less than steps")
        fault = _fault(self) if self.kind in _WITH_FACTOR else None
        if fault:
            raise RuntimeFailure(f"{self}: a {self.kind} schedule needs {fault}")

    def __call__(self, step: int) -> float:
        """Return the rate of a step; after the last step it stays constant."""
        if step <= self.warmup:
            return self.rate * step / self.warmup
        past = min(step, self.steps) - 1 - self.warmup
        if self.kind in _WITH_FACTOR:
            return self.rate * _WITH_FACTOR[self.kind](self, past, self.factor or 1.0)
        progress = past / (self.steps - self.warmup)
        if self.kind == "linear":
            return self.rate * (1 - progress)
        if self.kind == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * progress))
        return self.rate


def _fault(schedule: RateSchedule) -> str | None:
    """Return why a schedule is invalid, if it is."""
    kind, factor, marks = schedule.kind, schedule.factor, schedule.milestones
    if factor is None or not 0 < factor < math.inf:
        return "a factor above 0"
    if kind == "restarts" and (factor < 1 or factor != int(factor)):
        return "a whole factor of at least 1"
    if kind in ("cyclic", "one-cycle") and factor >= 1:
        return "a factor below 1"
    if kind in ("step", "restarts", "cyclic") and (schedule.period or 0) < 1:
        return "a period of at least 1"
    rising = all(first < second for first, second in pairwise((0, *marks)))
    if kind == "multistep" and not (rising and 1 <= len(marks) <= MOST_MILESTONES):
        return f"rising milestones, at most {MOST_MILESTONES}"
    return None


def _cosine(high: float, low: float, progress: float) -> float:
    return low + (high - low) * 0.5 * (1 + math.cos(math.pi * progress))


def _polynomial(schedule: RateSchedule, past: int, factor: float) -> float:
    return float((1 - past / (schedule.steps - schedule.warmup)) ** factor)


def _exponential(schedule: RateSchedule, past: int, factor: float) -> float:
    return float(factor**past)


def _step(schedule: RateSchedule, past: int, factor: float) -> float:
    return float(factor ** (past // (schedule.period or 1)))


def _multistep(schedule: RateSchedule, past: int, factor: float) -> float:
    return float(factor ** bisect_right(schedule.milestones, past))


def _restarts(schedule: RateSchedule, past: int, factor: float) -> float:
    length = schedule.period or 1
    if factor == 1:
        past %= length
    while past >= length:
        past -= length
        length *= int(factor)
    return _cosine(1.0, 0.0, past / length)


def _cyclic(schedule: RateSchedule, past: int, factor: float) -> float:
    place = past / (schedule.period or 1) % 2
    return factor + (1 - factor) * (1 - abs(place - 1))


def _one_cycle(schedule: RateSchedule, past: int, factor: float) -> float:
    span = schedule.steps - schedule.warmup
    peak, end, first = factor * span - 1, span - 1, 1 / 25
    if past <= peak:
        return _cosine(first, 1.0, past / peak if peak > 0 else 1.0)
    return _cosine(1.0, first / 1e4, (past - peak) / (end - peak))


_WITH_FACTOR: Mapping[str, Callable[[RateSchedule, int, float], float]] = {
    "polynomial": _polynomial,
    "exponential": _exponential,
    "step": _step,
    "multistep": _multistep,
    "restarts": _restarts,
    "cyclic": _cyclic,
    "one-cycle": _one_cycle,
}

PLAIN = ("constant", "linear", "cosine")
"""Schedules that need no number except the rate."""
KINDS = (*PLAIN, *_WITH_FACTOR)
