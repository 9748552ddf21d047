"""Numbers in a kernel's text that may be passed at run time, so that shapes share a function.

Emitters mark sizes, offsets and constants that need not be known at compile time. `closed` turns
them into literals: a kernel for one shape. A `Draft` leaves them open: for a device with little
flash, kernels with equal drafts become one function (`sharing.py`), which takes the differing
numbers as arguments. They are members of the kernel's `io` beside its pointers, constants that no
store may change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pockengine.backends.native.text import Code, Mark, MarkKind, Text, marked


def whole(value: object) -> Text:
    """Mark an i32 in a function that has `io`."""
    return marked(MarkKind.WHOLE, str(value))


def real(text: str) -> Text:
    """Mark an f32, as C writes it, in a function that has `io`."""
    return marked(MarkKind.REAL, text)


def passed(value: object) -> Text:
    """Mark an i32 in the kernel's own body."""
    return marked(MarkKind.PASSED, str(value))


def table(name: str, numbers: Sequence[int], *, in_body: bool = False) -> Text:
    """Mark the name of a constant table of i32, in a function with `io` or in the body.

    Mark its definition by `of_one_shape`.
    """
    text = f"(const int32_t[]){{{', '.join(map(str, numbers))}}}"
    return marked(MarkKind.PASSED_TABLE if in_body else MarkKind.TABLE, text, name)


def of_one_shape(text: str) -> Text:
    """Mark text that belongs only to a kernel for one shape, such as a comment."""
    return marked(MarkKind.ONE_SHAPE, text)


def of_many_shapes(text: str) -> Text:
    """Mark text that belongs only to a shared kernel."""
    return marked(MarkKind.MANY_SHAPES, text)


FIELDS, VALUES, PARAMETER = map(marked, (MarkKind.FIELDS, MarkKind.VALUES, MarkKind.PARAMETER))
"""Placeholders: the fields of `io`, their values, and the parameter that passes them."""


NUMBERS_PARAMETER = ", const pe_number *n"
"""Replacement of PARAMETER in a kernel's parameters, if it is passed numbers."""


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
    """A kernel's text split at its marks: open numbers, and the positions of their arguments."""

    texts: tuple[str, ...]
    marks: tuple[Mark, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Kernels with equal keys can share a function."""
        return self.texts, tuple(mark.kind for mark in self.marks)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The numbers, in the order of the text."""
        return tuple(
            Number(mark.text, _FIELD[mark.kind]) for mark in self.marks if mark.kind in _FIELD
        )

    def written(self, fields: Sequence[int | None]) -> str:
        """Return the text with each number as a literal, or as the field of that index."""
        places = iter(fields)
        types = {
            index: number.field
            for index, number in zip(fields, self.numbers, strict=True)
            if index is not None
        }
        parts = [self.texts[0]]
        for mark, text in zip(self.marks, self.texts[1:], strict=True):
            if mark.kind in _PLACES:
                parts.append(_PLACES[mark.kind](types))
            else:
                index = next(places)
                parts.append(_closed(mark) if index is None else _use(mark.kind, index))
            parts.append(text)
        return "".join(parts)


def closed(code: Code) -> str:
    """Return the text with literals for its numbers."""
    if isinstance(code, str):
        return code
    return "".join(part if isinstance(part, str) else _closed(part) for part in code.parts)


def _closed(mark: Mark) -> str:
    return "" if mark.kind is MarkKind.MANY_SHAPES else mark.name or mark.text


def draft_of(code: Text) -> Draft | None:
    """Return the draft of a text; None if it has no numbers, or no `io` to hold them."""
    texts, marks = [""], list[Mark]()
    for part in code.parts:
        if isinstance(part, str):
            texts[-1] += part
        elif part.kind is MarkKind.MANY_SHAPES:
            texts[-1] += part.text
        elif part.kind is not MarkKind.ONE_SHAPE:
            marks.append(part)
            texts.append("")
    kinds = {mark.kind for mark in marks}
    numbers, places = kinds & _FIELD.keys(), kinds & _PLACES.keys()
    needed = {MarkKind.PARAMETER} if numbers <= _IN_BODY else _PLACES.keys()
    return Draft(tuple(texts), tuple(marks)) if numbers and needed <= places else None


def _use(kind: MarkKind, index: int) -> str:
    return f"n[{index}].{_FIELD[kind]}" if kind in _IN_BODY else f"io->n{index}"


_IN_BODY = frozenset({MarkKind.PASSED, MarkKind.PASSED_TABLE})
"""Marks that read the kernel's argument, not its `io`."""

_FIELD = {
    MarkKind.WHOLE: "i",
    MarkKind.PASSED: "i",
    MarkKind.REAL: "f",
    MarkKind.TABLE: "t",
    MarkKind.PASSED_TABLE: "t",
}
"""Fields of pe_number by mark kind."""

_TYPES = {"i": "const int32_t ", "f": "const float ", "t": "const int32_t *const "}
"""Their C types."""

_PLACES: dict[MarkKind, Callable[[dict[int, str]], str]] = {
    MarkKind.FIELDS: lambda types: "".join(
        f"    {_TYPES[field]}n{index};\n" for index, field in types.items()
    ),
    MarkKind.VALUES: lambda types: "".join(
        f", .n{index} = n[{index}].{field}" for index, field in types.items()
    ),
    MarkKind.PARAMETER: lambda types: NUMBERS_PARAMETER if types else "",
}
