"""A session's progress as the texts of a checkpoint; pe_checkpoint.h describes them."""

import struct
from collections.abc import Mapping

from pockengine.backends.rate_schedule import KINDS, RateSchedule
from pockengine.backends.session import Course, Progress

VERSION = 4
"""PE_CHECKPOINT_VERSION."""
PLAIN_KINDS = ("constant", "linear", "cosine")
"""Schedules without a factor."""

Texts = dict[str, str]


def texts_of(progress: Progress) -> Texts:
    """Write the progress."""
    counts = {
        "checkpoint": VERSION,
        "steps": progress.steps,
        "updates": progress.updates,
        "collected": progress.collected,
        "seed": progress.seed,
    }
    course = {} if progress.course is None else _course_texts(progress.course)
    return {f"pockengine.{key}": str(value) for key, value in {**counts, **course}.items()}


def _course_texts(course: Course) -> dict[str, object]:
    schedule = course.schedule
    texts = {
        "schedule": schedule.kind,
        "rate": _bits(schedule.rate),
        "warmup": schedule.warmup,
        "total": schedule.steps,
        "rows": course.rows,
        "batch": course.batch,
        "flip": int(course.flip),
        "crop": course.crop,
        "shuffle": int(course.shuffled),
    }
    if schedule.kind in PLAIN_KINDS:
        return texts
    return texts | {
        "factor": _bits(schedule.factor or 0.0),
        "period": schedule.period or 0,
        "milestones": ",".join(map(str, schedule.milestones)),
    }


def progress_of(texts: Mapping[str, str]) -> Progress:
    """Read the progress; none of a file of params, ValueError or LookupError where it is damaged.

    Version 3 had no batch, flip and crop; version 2 had no rows, so that its schedule is left out.
    """
    known = {key.removeprefix("pockengine."): text for key, text in texts.items()}
    if "checkpoint" not in known:
        return Progress()
    version = int(known["checkpoint"])
    if not 1 <= version <= VERSION:
        raise ValueError(f"it is of version {version}; versions 1 to {VERSION} can be read")
    counts = {key: int(known[key]) for key in ("steps", "updates", "collected", "seed")}
    return Progress(**counts, course=_course_of(known) if "rows" in known else None)


def _course_of(known: Mapping[str, str]) -> Course:
    kind, warmup, total = known["schedule"], int(known["warmup"]), int(known["total"])
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no schedule")
    own = (
        _number(known["factor"]) or None if "factor" in known else None,
        int(known.get("period", 0)) or None,
        tuple(int(text) for text in known.get("milestones", "").split(",") if text),
    )
    steps = max(total, warmup + 1) if kind == "constant" else total
    schedule = RateSchedule(kind, _number(known["rate"]), steps, warmup, *own)
    return Course(
        schedule,
        int(known["rows"]),
        known["shuffle"] == "1",
        int(known.get("batch", 0)),
        known.get("flip") == "1",
        int(known.get("crop", 0)),
    )


def _bits(number: float) -> str:
    """The bits of a number, so that it reads back as the same."""
    return struct.pack(">d", number).hex()


def _number(bits: str) -> float:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    return float(number)
