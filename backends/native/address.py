"""Memory addresses as C expressions, using macros at the head of a generated program."""

from collections.abc import Mapping

from pockengine.backends.native.expression import scalar
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.placement import ARENA, FROZEN, PARAMS, Place, place_of
from pockengine.compiler.ir import Value
from pockengine.compiler.program import Entry

MEMORIES = {ARENA: "ARENA", PARAMS: "PARAM", FROZEN: "FROZEN"}
"""Macros for addresses in each memory."""


def place(value: Value, entry: Entry, params: Mapping[str, Place]) -> str:
    """The C expression of a value's address."""
    found = place_of(value, entry, params)
    if isinstance(found, Place):
        return address(found)
    number = found.item()
    text = scalar(number) if isinstance(number, float) else str(int(number))
    return f"(const {c_scalar(value.dtype).ctype}[]){{({c_scalar(value.dtype).ctype}){text}}}"


def address(found: Place) -> str:
    """The C expression of a place's address."""
    return f"{MEMORIES[found.memory]}({found.offset})"
