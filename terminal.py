"""Output of commands: text is never markup, and no table is truncated to fit the terminal."""

import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from pockengine.errors import printable

MOST_KEYS = 2
"""Maximum number of leading columns repeated to identify rows where a table continues below itself.
"""


Say = Callable[[str], None]
"""Prints a line about the work's progress."""


def duration(seconds: float) -> str:
    """Return a length of time in words: `40 s`, `7 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `1,200 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class PlainConsole(Console):
    """A console that prints text as it is, without interpreting markup or control characters.

    `width` applies if the output is not a terminal and COLUMNS is unset. A table that is too wide
    first drops the columns that are the same in every row and states them in a line below; then it
    wraps text between words; then it continues below itself.
    """

    def __init__(self, width: int | None = None) -> None:
        known = Console().is_terminal or os.environ.get("COLUMNS", "").isdigit()
        super().__init__(
            width=None if known else width,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; tables are fitted to the width."""
        parts = [part for one in objects for part in _fitted(self, one)]
        trimmed = (_Trimmed(part) if isinstance(part, Table) else part for part in parts)
        super().print(*trimmed, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the printed form of a text, in characters of the output's encoding."""
        shown = printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return super().render_str(shown, **options)


@dataclass(frozen=True)
class _Trimmed:
    """A table whose lines end at their last character, without the padding of its last column."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in console.render_lines(self.table, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                yield from line[:-1]
                yield line[-1]._replace(text=line[-1].text.rstrip())
            yield Segment.line()


def _fitted(console: Console, printed: Any) -> Iterator[Any]:
    """Yield an object; a table that is too wide becomes several that fit, above its caption."""
    if not isinstance(printed, Table) or not printed.columns:
        yield printed
        return
    notes = []
    for part in _parts(console, printed):
        if isinstance(part, Table):
            yield part
        else:
            notes.append(part)
    if printed.caption:
        notes.append(str(printed.caption))
    if notes:  # one text: rich joins several by spaces
        yield console.render_str("\n".join(notes), style="table.caption")


def _parts(console: Console, printed: Table) -> Iterator[Table | str]:
    """Yield tables without a caption that fit, and the line that states constant columns."""
    sizes = [_size(console, column) for column in printed.columns]
    room = console.width - _borders(printed)
    if sum(size.maximum for size in sizes) <= room:
        yield _with_columns(printed, [_folding(x) for x in printed.columns])
        return
    table, constants = _without_constants(printed)
    groups = _groups(console, table)
    for number, columns in enumerate(groups):
        part = _with_columns(table, _spread(console, table, columns))
        part.title = table.title if number == 0 else None
        yield part
    if constants:
        yield constants


def _size(console: Console, column: Column) -> Measurement:
    """Return the widths of a column's longest word and line; a number does not wrap."""
    options = console.options.update(width=1 << 16)
    cells = [Measurement.get(console, options, cell) for cell in column.cells]
    header = Measurement.get(console, options, column.header)
    longest = max((cell.maximum for cell in cells), default=0)
    word = max((cell.minimum for cell in cells), default=0)
    number = column.justify == "right" or column.no_wrap
    return Measurement(
        max(header.minimum, longest if number else word), max(header.maximum, longest)
    )


def _borders(table: Table, columns: int | None = None) -> int:
    """Return the width of a table's borders and padding: 3 a column, plus one."""
    return 3 * (len(table.columns) if columns is None else columns) + 1


def _without_constants(table: Table) -> tuple[Table, str]:
    """Return a table without its constant columns, and the line that states them."""
    if table.row_count < 2:
        return table, ""
    keys = _keys(table)
    constant = [
        column
        for column in table.columns
        if column not in keys and isinstance(column.header, str) and column.header
        if len(found := {str(cell) for cell in column.cells}) == 1 and found != {""}
    ]
    facts = ", ".join(f"{column.header} {next(iter(column.cells))!s}" for column in constant)
    made = _with_columns(table, [x for x in table.columns if x not in constant])
    return made, f"In every row: {facts}" if facts else ""


def _keys(table: Table) -> list[Column]:
    """Return the first columns that identify each row, at most MOST_KEYS."""
    for count in range(1, MOST_KEYS):
        rows = list(zip(*(map(str, x.cells) for x in table.columns[:count]), strict=True))
        if len(set(rows)) == len(rows):
            return table.columns[:count]
    return table.columns[:MOST_KEYS]


def _groups(console: Console, table: Table) -> list[list[Column]]:
    """Return groups of columns that fit side by side; each group starts with the key columns."""
    keys = _keys(table)
    room = console.width - _borders(table, 0)
    others = table.columns[len(keys) :]
    widest = max((_word(console, column, room) for column in others), default=0)
    taken = sum(_word(console, column, room) for column in keys)
    if taken + widest > room:
        keys = keys[:1]
        taken = _word(console, keys[0], room)
    groups: list[list[Column]] = [[*keys]]
    left = room - taken
    for column in table.columns[len(keys) :]:
        need = _word(console, column, room)
        if need > left and len(groups[-1]) > len(keys):
            groups.append([*keys])
            left = room - taken
        groups[-1].append(column)
        left -= need
    return groups


def _word(console: Console, column: Column, room: int) -> int:
    """Return the least width of a column with borders; a word takes at most half the width."""
    return min(_size(console, column).minimum, room // 2 - 3) + 3


def _spread(console: Console, table: Table, columns: Sequence[Column]) -> list[Column]:
    """Return columns with widths: each its longest word, plus a share of the remaining width."""
    room = console.width - _borders(table, len(columns))
    sizes = [_size(console, column) for column in columns]
    half = (console.width - _borders(table, 0)) // 2 - 3
    least = [min(size.minimum, half) for size in sizes]
    missing = [size.maximum - width for size, width in zip(sizes, least, strict=True)]
    left = max(0, room - sum(least))
    share = min(1.0, left / sum(missing)) if sum(missing) else 0.0
    return [
        replace(_folding(column), width=width + int(share * more))
        for column, width, more in zip(columns, least, missing, strict=True)
    ]


def _folding(column: Column) -> Column:
    return replace(column, overflow="fold", no_wrap=False)


def _with_columns(table: Table, columns: Sequence[Column]) -> Table:
    """Return a table of the same rows with other columns."""
    made = copy(table)
    made.caption = None  # it may be wider than the columns
    made.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
    return made
