"""The table of a training's state in checkpoints, besides params.

From it `native/state_text.py` writes the structures of pe.h and pe_train.h and the runtime's list
of fields, `native/state_views.py` makes the structures for ctypes, and `checkpoint_texts.py` the
texts. A new field is a row here, and an attribute of its dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pockengine.backends.rate_schedule import MOST_MILESTONES, PLAIN, RateSchedule
from pockengine.backends.session import Course, Progress

VERSION = 4
"""PE_CHECKPOINT_VERSION: the version of the texts."""


@dataclass(frozen=True)
class Kind:
    """The C type of a field, its default, and its form in texts."""

    c_type: str
    zero: Any
    form: str
    length: int | None = None


COUNT = Kind("int64_t", 0, "PE_TEXT_COUNT")
ROWS = Kind("int64_t", 0, "PE_TEXT_ROWS")
SEED = Kind("uint32_t", 0, "PE_TEXT_SEED")
FLAG = Kind("bool", False, "PE_TEXT_FLAG")
REAL = Kind("double", 0.0, "PE_TEXT_REAL")
NAME = Kind("pe_schedule_kind", "constant", "PE_TEXT_SCHEDULE")
NUMBERS = Kind("int64_t", (), "PE_TEXT_MILESTONES", MOST_MILESTONES)


@dataclass(frozen=True)
class Field:
    """A field of pe_progress or pe_schedule.

    `attribute` is the attribute of Progress or Course; `key` the name in texts; `since` the first
    version of texts with it.
    """

    name: str
    kind: Kind
    doc: str
    attribute: str
    key: str
    since: int = 1


def _field(name: str, kind: Kind, doc: str, attribute: str = "", **more: Any) -> Field:
    return Field(name, kind, doc, attribute=attribute or name, key=more.pop("key", name), **more)


PROGRESS = (
    _field("steps", COUNT, 'runs of the entry "train", which is the position in the data'),
    _field("updates", COUNT, "updates of the weights"),
    _field("collected", COUNT, "micro-batches since the last update"),
    _field("seed", SEED, "seed of random numbers"),
)
"""Fields of pe_progress."""

PLAIN_SCHEDULE = (
    _field("kind", NAME, "kind of schedule", "schedule.kind", key="schedule", since=3),
    _field("rate", REAL, "maximum learning rate", "schedule.rate", since=3),
    _field("warmup", COUNT, "updates until the maximum rate", "schedule.warmup", since=3),
    _field("total", COUNT, "number of updates; 0: no schedule", "schedule.steps", since=3),
    _field("rows", ROWS, "rows of the data; 0: unknown", since=3),
    _field("batch", ROWS, "rows per step; 0: unknown", since=4),
    _field("shuffled", FLAG, "shuffle in each epoch (pe_row_order.h)", key="shuffle", since=3),
    _field("flip", FLAG, "mirror pictures (pe_data_augment.h)", since=4),
    _field("crop", COUNT, "shift pictures by up to this many pixels", since=4),
)
"""Fields of pe_schedule for every kind of schedule."""

OWN_NUMBERS = (
    _field("factor", REAL, "parameters of the kind, see pe_schedule.h", "schedule.factor", since=3),
    _field("period", COUNT, "number of updates", "schedule.period", since=3),
    _field(
        "milestones", NUMBERS, "ascending updates; 0 after the last", "schedule.milestones", since=3
    ),
)
"""Fields of pe_schedule for kinds with a factor."""

SCHEDULE = (*PLAIN_SCHEDULE, *OWN_NUMBERS)


def fields_of(progress: Progress) -> tuple[Field, ...]:
    """Return the fields in the texts of a progress."""
    if progress.course is None:
        return PROGRESS
    plain = progress.course.schedule.kind in PLAIN
    return (*PROGRESS, *(PLAIN_SCHEDULE if plain else SCHEDULE))


def values_of(progress: Progress) -> dict[str, Any]:
    """Return the values of all fields by name."""
    values = {field.name: getattr(progress, field.attribute) for field in PROGRESS}
    for field in SCHEDULE:
        found = attrgetter(field.attribute)(progress.course) if progress.course else None
        values[field.name] = field.kind.zero if found is None else found
    return values


def progress_of(values: Mapping[str, Any]) -> Progress:
    """Return the progress from values; missing fields of the schedule are zero."""
    counts = {field.attribute: values[field.name] for field in PROGRESS}
    if not values.get("total"):
        return Progress(**counts)
    found = {field.attribute: values.get(field.name, field.kind.zero) for field in SCHEDULE}
    shape = {
        name.removeprefix("schedule."): value
        for name, value in found.items()
        if name.startswith("schedule.")
    }
    if shape["kind"] == "constant":
        shape["steps"] = max(shape["steps"], shape["warmup"] + 1)
    own = {name: shape[name] or None for name in ("factor", "period")}
    schedule = RateSchedule(**{**shape, **own})
    others = {name: value for name, value in found.items() if "." not in name}
    return Progress(**counts, course=Course(schedule, **others))
