"""Read TOML tables as dataclasses, with checked types: one field per key."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST = 1 << 62


def from_table(kind: type[T], table: Mapping[str, Any], keys: Mapping[str, str] | None = None) -> T:
    """Build a dataclass; ValueError for a key that is unknown, missing, or of the wrong type.

    Strings, numbers and booleans must have exactly the field's type; lists of strings become
    tuples. Other values are taken unchanged. `keys` has the keys of fields with another name.
    """
    named = keys or {}
    known = {named.get(f.name, f.name): f for f in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ValueError(f"unknown key {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
    missing = [key for key, f in known.items() if f.default is MISSING and key not in table]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    types = get_type_hints(kind)
    values = {known[key].name: (key, value) for key, value in table.items()}
    return kind(**{name: _typed(*entry, types[name]) for name, entry in values.items()})


def _typed(name: str, value: Any, expected: Any) -> Any:
    if get_origin(expected) is tuple:
        if not isinstance(value, list) or any(type(item) is not str for item in value):
            raise ValueError(f"{name} must be a list of texts, not {value!r}")
        return tuple(value)
    kinds = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be of type {kinds[0].__name__}, not {value!r}")
    if type(value) is int and not 0 <= value < LARGEST:
        raise ValueError(f"{name} must be from 0 to 2^62")
    return value
