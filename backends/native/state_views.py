"""ctypes views pe_progress and pe_schedule, generated from the table of a training's state."""

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

from pockengine.backends.rate_schedule import KINDS
from pockengine.backends.session import Progress
from pockengine.backends.training_state import (
    NAME,
    NUMBERS,
    PROGRESS,
    SCHEDULE,
    Field,
    progress_of,
    values_of,
)

C_TYPES: dict[str, Any] = {
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "pe_schedule_kind": ctypes.c_int,
}


def _typed(fields: Sequence[Field]) -> list[tuple[str, Any]]:
    return [
        (field.name, C_TYPES[field.kind.c_type] * field.kind.length)
        if field.kind.length
        else (field.name, C_TYPES[field.kind.c_type])
        for field in fields
    ]


class ProgressView(ctypes.Structure):
    """pe_progress of pe.h."""

    _fields_: ClassVar = _typed(PROGRESS)


class ScheduleView(ctypes.Structure):
    """pe_schedule of pe_train.h."""

    _fields_: ClassVar = _typed(SCHEDULE)


def to_views(progress: Progress) -> tuple[ProgressView, ScheduleView]:
    """Convert a progress for the runtime; without a course the schedule is all zeros."""
    values = values_of(progress)
    views = ProgressView(), ScheduleView()
    for view, fields in zip(views, (PROGRESS, SCHEDULE), strict=True):
        for field in fields:
            value = values[field.name]
            if field.kind is NAME:
                value = KINDS.index(value)
            elif field.kind is NUMBERS:
                value = (ctypes.c_int64 * (field.kind.length or 0))(*value)
            setattr(view, field.name, value)
    return views


def from_views(progress: ProgressView, schedule: ScheduleView) -> Progress:
    """Convert a progress of the runtime."""
    values = {field.name: getattr(progress, field.name) for field in PROGRESS}
    for field in SCHEDULE:
        value = getattr(schedule, field.name)
        if field.kind is NAME:
            value = KINDS[value]
        elif field.kind is NUMBERS:
            value = tuple(filter(None, value))
        values[field.name] = value
    return progress_of(values)
