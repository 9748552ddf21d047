"""A figure over the commits: drawn in a terminal, with the commits where it moved."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pockengine.errors import FarmError
from pockengine.farm.results.noise import find_moves
from pockengine.farm.results.regression import EXACT, Key, key_of
from pockengine.farm.results.results import Record

BAR = 40
SMALLEST_MOVE = 0.02


@dataclass(frozen=True)
class TrendPoint:
    """A commit and its figure: the median of its records, of a quiet machine's if it has any."""

    commit: str
    time: str
    value: float
    records: int
    busy: bool = False


@dataclass(frozen=True)
class Move:
    """A change of level: it came after `last` and with, or before, `first`."""

    last: TrendPoint
    first: TrendPoint
    before: float
    after: float
    between: int | None  # unmeasured commits in between; None if git does not know them

    def describe(self) -> str:
        """Summarize in one line what changed and where."""
        change = f"{(self.after / self.before - 1):+.1%}" if self.before else "from 0"
        levels = f"{_number(self.before)} to {_number(self.after)}"
        text = f"{change} at {self.first.commit}: {levels}"
        if self.between:
            other = (
                "the unmeasured commit"
                if self.between == 1
                else f"one of the {self.between} unmeasured commits"
            )
            bisect = f"git bisect start {self.first.commit} {self.last.commit}"
            text += f"; or {other} since {self.last.commit}: {bisect}"
        return text


@dataclass(frozen=True)
class Trend:
    """One figure's points, oldest first, and its moves."""

    name: str
    unit: str
    points: list[TrendPoint]
    moves: list[Move]


def trends(records: Sequence[Record], commits: Sequence[str]) -> list[Trend]:
    """Return a trend for each figure; `commits` give the order, newest first.

    Records of other commits, of changed checkouts, and those that failed are left out.
    """
    order = {commit: -i for i, commit in enumerate(commits)}
    by_key: dict[Key, list[Record]] = {}
    for record in records:
        if record.ok and record.commit in order:
            by_key.setdefault(key_of(record), []).append(record)
    if not by_key:
        raise FarmError("no stored record matches; `results` lists what there is")
    series = []
    for same in by_key.values():
        points = _points(sorted(same, key=lambda record: order[record.commit]))
        one = same[0]
        name = f"{one.metric}: {one.device} {one.model} batch {one.batch} {one.scheme}"
        quiet = [point for point in points if not point.busy]
        moves = _moves(quiet, one.metric, order) if quiet else []
        series.append(Trend(name, one.unit, points, moves))
    return series


def draw(trend: Trend) -> Group:
    """Format a trend: a bar per commit, and its moves as text."""
    table = Table(title=trend.name)
    for heading in ("commit", "when", trend.unit, "", "n"):
        table.add_column(heading, justify="right" if heading in (trend.unit, "n") else "left")
    most = max(point.value for point in trend.points) or 1.0
    moved = {move.first.commit for move in trend.moves}
    for point in trend.points:
        bar = "█" * max(1, round(BAR * point.value / most))
        style = "bold red" if point.commit in moved else ""
        count = f"{point.records} busy" if point.busy else str(point.records)
        cells = (point.commit, point.time[:16], _number(point.value), bar, count)
        table.add_row(*(Text(cell, style) for cell in cells))
    lines = [Text(move.describe()) for move in trend.moves] or [Text("It has not moved.")]
    return Group(table, *lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


def _points(records: Sequence[Record]) -> list[TrendPoint]:
    by_commit: dict[str, list[Record]] = {}
    for record in records:
        by_commit.setdefault(record.commit, []).append(record)
    return [_point(commit, same) for commit, same in by_commit.items()]


def _point(commit: str, records: Sequence[Record]) -> TrendPoint:
    quiet = [record for record in records if not record.busy]
    same = quiet or records
    value = statistics.median(record.value for record in same)
    return TrendPoint(commit, same[-1].time, value, records=len(same), busy=not quiet)


def _moves(points: Sequence[TrendPoint], metric: str, order: dict[str, int]) -> list[Move]:
    """Return every change of an exact figure, or the changes of a noisy one that noise does not
    explain."""
    values = [point.value for point in points]
    if metric in EXACT or min(values) <= 0:
        places = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    else:
        places = find_moves(values, SMALLEST_MOVE)
    borders = [0, *places, len(values)]
    levels = [statistics.median(values[a:b]) for a, b in pairwise(borders) if a < b]
    return [
        Move(
            points[place - 1],
            points[place],
            levels[i],
            after=levels[i + 1],
            between=order[points[place].commit] - order[points[place - 1].commit] - 1,
        )
        for i, place in enumerate(places)
    ]
