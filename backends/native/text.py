"""C text in parts: strings, and marks whose text depends on how many shapes a kernel serves."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from string import Formatter


class MarkKind(Enum):
    """What a mark is in a kernel for one shape, and in one for many (`numbers.py`)."""

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
        parts += code.parts if isinstance(code, Text) else (code,)
    return Text(tuple(parts))


def fill(template: str, *values: object, **fields: object) -> Text:
    """Fill a template of `str.format`; texts with marks stay what they are."""
    codes: list[Code] = []
    places = count()
    for literal, field, _, _ in Formatter().parse(template):
        codes.append(literal)
        if field is not None:
            key = field or str(next(places))
            value = values[int(key)] if key.isdigit() else fields[key]
            codes.append(value if isinstance(value, Text) else str(value))
    return joined("", codes)


def indented(lines: Iterable[Code], spaces: int = 4) -> list[Code]:
    """Return lines behind so many spaces."""
    return [" " * spaces + line for line in lines]


def defines(macros: Iterable[tuple[str, object]]) -> list[Code]:
    """Return a #define of each macro."""
    return [fill("#define {} {}", name, value) for name, value in macros]
