"""Types of pass options: checks of values, and descriptions for messages."""

import types
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin


@dataclass(frozen=True)
class OneOf:
    """Allowed values of an option: `Annotated[str, OneOf(("bf16", "f16"))]`."""

    values: tuple[object, ...]


_WORDS: Mapping[object, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    types.NoneType: "None",
}


def accepts(kind: Any, value: object) -> bool:
    """Whether a value is of an option's type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return accepts(arguments[0], value) and value in _allowed(kind)
    if origin in (Union, types.UnionType):
        return any(accepts(each, value) for each in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(accepts(arguments[0], item) for item in value)
    if origin is Set:
        return isinstance(value, Set) and all(accepts(arguments[0], item) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            accepts(arguments[0], key) and accepts(arguments[1], item)
            for key, item in value.items()
        )
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


def described(kind: Any) -> str:
    """Describe the values of an option's type in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return "one of " + ", ".join(map(repr, _allowed(kind)))
    if origin in (Union, types.UnionType):
        return " or ".join(described(each) for each in arguments)
    if origin is tuple:
        return f"a tuple (each {described(arguments[0])})"
    if origin is Set:
        return f"a frozenset (each {described(arguments[0])})"
    if origin is Mapping:
        return f"a dict (each key {described(arguments[0])}, each value {described(arguments[1])})"
    words: str = _WORDS.get(kind, kind.__name__)
    return words


def _allowed(kind: Any) -> tuple[object, ...]:
    (one_of,) = get_args(kind)[1:]
    values: tuple[object, ...] = one_of.values
    return values
