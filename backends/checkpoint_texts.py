"""A session's progress as the texts of a checkpoint; pe_checkpoint.h describes the format."""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from pockengine.backends.rate_schedule import KINDS
from pockengine.backends.session import Progress
from pockengine.backends.training_state import (
    COUNT,
    FLAG,
    NAME,
    NUMBERS,
    OWN_NUMBERS,
    PROGRESS,
    REAL,
    ROWS,
    SCHEDULE,
    SEED,
    VERSION,
    Kind,
    fields_of,
    progress_of,
    values_of,
)

PREFIX = "pockengine."

Texts = dict[str, str]


def texts_of(progress: Progress) -> Texts:
    """Format the progress."""
    values = values_of(progress)
    texts = {field.key: _FORMS[field.kind][0](values[field.name]) for field in fields_of(progress)}
    return {PREFIX + key: text for key, text in {"checkpoint": str(VERSION), **texts}.items()}


def read_texts(texts: Mapping[str, str]) -> Progress:
    """Parse the progress; None for a file of params, ValueError or LookupError if it is damaged.

    Version 3 has no batch, flip and crop; version 2 has no rows, so its schedule is ignored.
    """
    known = {key.removeprefix(PREFIX): text for key, text in texts.items()}
    if "checkpoint" not in known:
        return Progress()
    version = int(known["checkpoint"])
    if not 1 <= version <= VERSION:
        raise ValueError(f"it is of version {version}; versions 1 to {VERSION} can be read")
    values = {field.name: _FORMS[field.kind][1](known[field.key]) for field in PROGRESS}
    for field in SCHEDULE if "rows" in known else ():
        if field.key in known:
            values[field.name] = _FORMS[field.kind][1](known[field.key])
        elif field.since <= version and field not in OWN_NUMBERS:
            raise LookupError(field.key)
    return progress_of(values)


def _bits(number: float) -> str:
    """The bits of a number, which round-trip exactly."""
    return struct.pack(">d", number).hex()


def _number(bits: str) -> float:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    return float(number)


def _kind(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"{name!r} is no schedule")
    return name


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


_FORMS: Mapping[Kind, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    COUNT: (str, int),
    ROWS: (str, int),
    SEED: (str, int),
    FLAG: (lambda flag: str(int(flag)), lambda text: text == "1"),
    REAL: (_bits, _number),
    NAME: (str, _kind),
    NUMBERS: (lambda numbers: ",".join(map(str, numbers)), _numbers),
}
"""Writer and reader of each kind of field."""
