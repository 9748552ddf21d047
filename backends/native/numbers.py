"""Numbers in a kernel's text that may be passed at run time, so that shapes share a function.

Emitters mark sizes, offsets and constants that need not be known at compile time. `closed` turns
them into literals: a kernel for one shape. A `Draft` leaves them open: for a device with little
flash, kernels with equal drafts become one function (`sharing.py`), which takes the differing
numbers as arguments. They are members of the kernel's `io` beside its pointers, constants that no
store may change.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MARK = re.compile("\x02(.)(.*?)\x03", re.DOTALL)
_WHOLE, _REAL, _TABLE, _PASSED, _PASSED_TABLE, _ONE, _MANY, _PLACE = "ift#TsM@"

_FIELDS, _VALUES, _PARAMETER = "fields", "values", "parameter"


def whole(value: object) -> str:
    """Mark an i32 in a function that has `io`."""
    return f"\x02{_WHOLE}{value}\x03"


def real(text: str) -> str:
    """Mark an f32, as C writes it, in a function that has `io`."""
    return f"\x02{_REAL}{text}\x03"


def passed(value: object) -> str:
    """Mark an i32 in the kernel's own body."""
    return f"\x02{_PASSED}{value}\x03"


def table(name: str, numbers: Sequence[int], *, in_body: bool = False) -> str:
    """Mark the name of a constant table of i32, in a function with `io` or in the body.

    Mark its definition by `of_one_shape`.
    """
    text = f"(const int32_t[]){{{', '.join(map(str, numbers))}}}"
    return f"\x02{_PASSED_TABLE if in_body else _TABLE}{name}={text}\x03"


def of_one_shape(text: str) -> str:
    """Mark text that belongs only to a kernel for one shape, such as a comment."""
    return f"\x02{_ONE}{text}\x03"


def of_many_shapes(text: str) -> str:
    """Mark text that belongs only to a shared kernel."""
    return f"\x02{_MANY}{text}\x03"


FIELDS, VALUES, PARAMETER = (f"\x02{_PLACE}{name}\x03" for name in (_FIELDS, _VALUES, _PARAMETER))
"""Placeholders: the fields of `io`, their values, and the parameter that passes them."""


@dataclass(frozen=True)
class Number:
    """A number as C text, or a table; and its field of pe_number."""

    text: str
    field: str

    @property
    def is_passed(self) -> bool:
        """Whether it is passed even if it is always the same."""
        return self.field == "t"

    def __str__(self) -> str:
        return f"{{.{self.field} = {self.text}}}"


@dataclass(frozen=True)
class Draft:
    """A kernel's text split at its marks: `marks` are kind and payload of the open numbers."""

    texts: tuple[str, ...]
    marks: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Kernels with equal keys can share a function."""
        return self.texts, tuple(mark if mark[0] == _PLACE else mark[0] for mark in self.marks)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers, in the order of the text."""
        return tuple(
            Number(payload.partition("=")[2] or payload, _FIELD[kind])
            for kind, payload in self.marks
            if kind != _PLACE
        )

    def written(self, fields: Sequence[int | None]) -> str:
        """Return the text with each number as a literal, or as the field of that index."""
        numbers, places = self.numbers, iter(fields)
        types = {
            index: number.field
            for index, number in zip(fields, numbers, strict=True)
            if index is not None
        }
        parts = [self.texts[0]]
        for (kind, payload), text in zip(self.marks, self.texts[1:], strict=True):
            parts.append(_PLACES[payload](types) if kind == _PLACE else "")
            if kind != _PLACE:
                index = next(places)
                parts.append(payload if index is None else _use(kind, index))
            parts.append(text)
        return "".join(parts)


def closed(text: str) -> str:
    """Return the text with literals for its numbers."""
    return _MARK.sub(_closed_mark, text)


def _closed_mark(mark: re.Match[str]) -> str:
    kind, payload = mark.groups()
    if kind in (_MANY, _PLACE):
        return ""
    return payload if kind == _ONE else payload.partition("=")[0]


def draft_of(text: str) -> Draft | None:
    """Return the draft of a text; None if it has no numbers, or no `io` to hold them."""
    first, *rest = _MARK.split(text)
    texts, marks = [first], []
    for kind, payload, following in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if kind in (_ONE, _MANY):
            texts[-1] += (payload if kind == _MANY else "") + following
        else:
            marks.append((kind, payload))
            texts.append(following)
    kinds = {kind for kind, _ in marks} - {_PLACE}
    places = {payload for kind, payload in marks if kind == _PLACE}
    needed = {_PARAMETER} if kinds <= _IN_BODY else set(_PLACES)
    return Draft(tuple(texts), tuple(marks)) if kinds and needed <= places else None


def _use(kind: str, index: int) -> str:
    return f"n[{index}].{_FIELD[kind]}" if kind in _IN_BODY else f"io->n{index}"


_IN_BODY = frozenset({_PASSED, _PASSED_TABLE})
"""Marks that read the kernel's argument, not its `io`."""

_FIELD = {_WHOLE: "i", _PASSED: "i", _REAL: "f", _TABLE: "t", _PASSED_TABLE: "t"}
"""Fields of pe_number by mark kind."""

_TYPES = {"i": "const int32_t ", "f": "const float ", "t": "const int32_t *const "}
"""Their C types."""

_PLACES: dict[str, Callable[[dict[int, str]], str]] = {
    _FIELDS: lambda types: "".join(
        f"    {_TYPES[field]}n{index};\n" for index, field in types.items()
    ),
    _VALUES: lambda types: "".join(
        f", .n{index} = n[{index}].{field}" for index, field in types.items()
    ),
    _PARAMETER: lambda types: ", const pe_number *n" if types else "",
}
