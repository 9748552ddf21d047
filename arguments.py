"""Check arguments against a function's annotations.

Covers a subset of the types: classes, unions, tuples, callables, and the container type of mappings
and sequences, but not their elements. An annotation outside this subset accepts any value.
"""

import collections.abc
import difflib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pockengine.errors import ArgumentError

T = TypeVar("T")

_WIDER: Mapping[object, Any] = {
    bool: Integral,
    float: Real,
    int: Integral,
    Path: (os.PathLike, str),
    tuple: (tuple, list),
}
"""Types that are accepted in place of a type, besides its own instances."""
_SHOWN = 40


def check_arguments(
    function: Callable[..., Any], positional: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Raise ArgumentError for an argument of the wrong type; a call that does not bind is left to
    Python.
    """
    expected = _annotations(function)
    for name, value in (*zip(_places(function), positional, strict=False), *named.items()):
        check_argument(function.__qualname__, name, value, expected.get(name, Any))


def check_argument(function: str, name: str, value: object, expected: Any) -> None:
    """Raise ArgumentError if a value is not of type `expected`."""
    if not _fits(value, expected):
        raise ArgumentError(
            f"{function}: {name} must be {_words(expected)}, not "
            f"{type(value).__name__} ({_shown(value)})"
        )
    if isinstance(value, str) and "\0" in value:
        raise ArgumentError(f"{function}: {name} holds a NUL character: {value!r}")


def with_keywords(function: str, options: T, keywords: Mapping[str, Any], kinds: type) -> T:
    """Return options, a dataclass, with the fields that are passed as a function's keywords.

    `kinds` is the TypedDict of the keywords. ArgumentError for an unknown name or a wrong type.
    """
    types = get_type_hints(kinds)
    for name, value in keywords.items():
        if name not in types:
            near = difflib.get_close_matches(name, types, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(types))}"
            raise ArgumentError(f"{function} has no option {name!r}; {hint}")
        check_argument(function, name, value, types[name])
    changed: T = replace(options, **keywords)  # type: ignore[type-var]
    return changed


@cache
def _places(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters."""
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    )


@cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters, except names imported for type checkers only."""
    names = vars(sys.modules[function.__module__])
    found = {}
    for name, annotation in inspect.get_annotations(function).items():
        try:
            found[name] = eval(annotation, names) if isinstance(annotation, str) else annotation
        except (NameError, AttributeError):
            continue
    return found


def _fits(value: object, expected: Any) -> bool:
    origin, inner = get_origin(expected), get_args(expected)
    if expected is Any or expected in (None, NoneType):
        return expected is Any or value is None
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple:
        return isinstance(value, _WIDER[tuple]) and _parts_fit(tuple(value), inner)
    kind = origin or expected
    if not isinstance(kind, type) or (getattr(kind, "_is_protocol", False) and not _checked(kind)):
        return True
    if isinstance(value, str) and kind in (collections.abc.Sequence, collections.abc.Iterable):
        return False  # a string is a sequence, but its letters are never meant
    if kind is bool and type(value).__name__ in ("bool", "bool_"):
        return True  # NumPy's
    if _checked(kind) and isinstance(value, type | Mapping | set):
        return False  # a dict has `update` too, as an optimizer does
    return isinstance(value, _WIDER.get(kind, kind))


def _parts_fit(parts: tuple[object, ...], expected: tuple[Any, ...]) -> bool:
    if expected[-1:] == (...,):
        expected = expected[:1] * len(parts)
    pairs = zip(parts, expected, strict=False)
    return len(parts) == len(expected) and all(_fits(part, each) for part, each in pairs)


def _checked(protocol: type) -> bool:
    return bool(getattr(protocol, "_is_runtime_protocol", False))


def _words(expected: Any) -> str:
    """Format a type as its annotation is written, without module names."""
    if get_origin(expected) in (Union, UnionType):
        return " | ".join(map(_words, get_args(expected)))
    if expected in (None, NoneType):
        return "None"
    kind = get_origin(expected) or expected
    return str(getattr(kind, "__name__", kind))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:  # of a user's object
        text = f"its repr raises {type(error).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
