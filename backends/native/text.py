"""C text in parts: strings, and marks whose text depends on how many shapes a kernel serves."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import count
from string import Formatter


class MarkKind(Enum):
    """The text of a mark in a kernel for one shape, and in one for many (`numbers.py`)."""

    WHOLE = "an i32 in a function that has `io`"
    REAL = "an f32 in a function that has `io`"
    TABLE = "a table of i32 in a function that has `io`"
    PASSED = "an i32 in the kernel's own body"
    PASSED_TABLE = "a table of i32 in the kernel's own body"
    ONE_SHAPE = "text of a kernel for one shape"
    MANY_SHAPES = "text of a shared kernel"
    FIELDS = "the fields of `io`"
    VALUES = "the values of those fields"
    PARAMETER = "the parameter that passes them"


@dataclass(frozen=True)
class Mark:
    """A part that is not fixed yet: `text` is its C, `name` that of a table's definition."""

    kind: MarkKind
    text: str = ""
    name: str = ""


@dataclass(frozen=True)
class Text:
    """C text with marks. An f-string would lose them, so formatting one raises TypeError."""

    parts: tuple[str | Mark, ...]

    def __add__(self, other: "Code") -> "Text":
        return joined("", [self, other])

    def __radd__(self, other: str) -> "Text":
        return joined("", [other, self])

    def __str__(self) -> str:
        raise TypeError("text with marks has no string yet; combine it by fill() or joined()")


Code = str | Text
"""C text, with marks or without."""


def marked(kind: MarkKind, text: str = "", name: str = "") -> Text:
    """Return a mark alone."""
    return Text((Mark(kind, text, name),))


def joined(separator: str, codes: Iterable[Code]) -> Text:
    """Return the codes with a separator between them."""
    parts: list[str | Mark] = []
    for place, code in enumerate(codes):
        if place and separator:
            parts.append(separator)
        if isinstance(code, str):
            parts.append(code)
        else:
            parts += code.parts
    return _text(parts)


def fill(template: str, *values: object, **fields: object) -> Text:
    """Fill a template of `str.format`; texts with marks stay what they are."""
    parts: list[str | Mark] = []
    for literal, field in _pieces(template):
        parts.append(literal)
        if field is not None:
            value = values[int(field)] if field.isdigit() else fields[field]
            if isinstance(value, Text):
                parts += value.parts
            else:
                parts.append(str(value))
    return _text(parts)


@lru_cache(1024)
def _pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    """Return each literal of a template with the field after it, numbered if it has no name."""
    places = count()
    return tuple(
        (literal, None if field is None else field or str(next(places)))
        for literal, field, _, _ in Formatter().parse(template)
    )


def _text(parts: Iterable[str | Mark]) -> Text:
    """Return the text of these parts, with neighboring strings as one: texts nest deeply."""
    found: list[str | Mark] = []
    strings: list[str] = []
    for part in parts:
        if isinstance(part, str):
            strings.append(part)
        else:
            if strings:
                found.append("".join(strings))
                strings = []
            found.append(part)
    if strings:
        found.append("".join(strings))
    return Text(tuple(found))


def indented(lines: Iterable[Code], spaces: int = 4) -> list[Code]:
    """Return the lines, indented by `spaces`."""
    return [" " * spaces + line for line in lines]


def defines(macros: Iterable[tuple[str, object]]) -> list[Code]:
    """Return a #define of each macro."""
    return [fill("#define {} {}", name, value) for name, value in macros]
