"""Pictures of stored figures: bars, memory over a step, accuracy over memory, commits."""

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from pockengine.farm.bench.running import OURS
from pockengine.farm.report.plots import STYLE
from pockengine.farm.results.results import Record
from pockengine.farm.results.trend import Trend

WIDTH = 9  # inches
MOST_COMMITS = 40  # on an axis
MARKERS = "os^Dv<>Pp*X"
NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters, which names may hold."""
SHORT, BYTES = EngFormatter(places=3, sep=" "), EngFormatter("B", places=3)
"""69409087 as 69.409 M, or as 69.409 MB."""


def bars(named: Sequence[tuple[str, Record]]) -> bytes:
    """Return an SVG with a bar for each record from its least to its largest value."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.7 + 0.28 * len(named)), layout="constrained")
        axis = figure.subplots()
        values = [record.value for _, record in named]
        spreads = [
            [max(0.0, record.value - record.min) for _, record in named],
            [max(0.0, record.max - record.value) for _, record in named],
        ]
        colors = ["#3182bd" if record.engine == OURS else "#bdbdbd" for _, record in named]
        drawn = axis.barh(range(len(named)), values, xerr=spreads, color=colors)
        axis.bar_label(drawn, labels=[SHORT(value) for value in values], padding=3)
        axis.xaxis.set_major_formatter(EngFormatter())
        axis.set_yticks(range(len(named)), [name for name, _ in named], parse_math=False)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_xlabel(named[0][1].unit, parse_math=False)
        return _svg(figure)


def timeline(named: Sequence[tuple[str, Record]]) -> bytes:
    """Return an SVG of the bytes that are alive at each kernel of a step, a line a record."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.2 + 0.16 * len(named)), layout="constrained")
        axis = figure.subplots()
        for name, record in named:
            live = record.samples or ()
            (drawn,) = axis.step(range(len(live)), live, where="post", linewidth=1.2)
            drawn.set_label(f"{name}: at most {BYTES(record.value)}, {len(live)} kernels")
            axis.fill_between(range(len(live)), live, step="post", alpha=0.12)
        axis.set_xlabel("kernel of the step, in order")
        _from_zero(axis, "B")
        axis.margins(x=0)
        _legend(figure)
        return _svg(figure)


def front(points: Sequence[tuple[str, Record, Record]]) -> bytes:
    """Return an SVG of accuracies over bytes; the line joins what nothing beats in both.

    A point is a name, the record of its accuracy and that of its bytes.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.6 + 0.16 * len(points)), layout="constrained")
        axis = figure.subplots()
        best = unbeaten([(memory.value, accuracy.value) for _, accuracy, memory in points])
        axis.step(*zip(*best, strict=True), where="post", color="#999999", linewidth=0.9)
        for place, (name, accuracy, memory) in enumerate(points):
            spread = [[accuracy.value - accuracy.min], [accuracy.max - accuracy.value]]
            drawn = axis.errorbar(
                memory.value, accuracy.value, yerr=spread, fmt=MARKERS[place % len(MARKERS)]
            )
            drawn.set_label(f"{name}: {accuracy.value:.3f}, {BYTES(memory.value)}")
        axis.set_xlabel(points[0][2].metric, parse_math=False)
        axis.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axis.set_ylabel("accuracy")
        _legend(figure)
        return _svg(figure)


def unbeaten(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto-optimal points (fewest bytes, highest accuracy), sorted by bytes."""
    best: list[tuple[float, float]] = []
    for memory, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or accuracy > best[-1][1]:
            best.append((memory, accuracy))
    return best


def lines(trends: Sequence[Trend], commits: Sequence[str]) -> bytes:
    """Return an SVG with a line for each trend over `commits`, oldest first; the last count.

    Times of a busy machine are crosses beside the line: values off the scale are at its upper end.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.2 + 0.16 * len(trends)), layout="constrained")
        axis = figure.subplots()
        names = commits[-MOST_COMMITS:]
        places = {commit: place for place, commit in enumerate(names)}
        colors = {}
        for trend in trends:
            (drawn,) = axis.plot(*_line(places, trend, busy=False), marker="o", markersize=3)
            drawn.set_label(trend.name)
            colors[trend.name] = drawn.get_color()
        _from_zero(axis, trends[0].unit)
        top = axis.get_ylim()[1]
        for trend in trends:
            x, y = _line(places, trend, busy=True)
            axis.plot(x, np.minimum(y, top), "x", color=colors[trend.name], clip_on=False)
        axis.set_xticks(range(len(names)), names, rotation=90)
        _legend(figure)
        return _svg(figure)


def _line(places: Mapping[str, int], trend: Trend, busy: bool) -> tuple[list[int], list[float]]:
    same = [point for point in trend.points if point.busy is busy and point.commit in places]
    return [places[point.commit] for point in same], [point.value for point in same]


def _from_zero(axis: Axes, unit: str) -> None:
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(EngFormatter())
    axis.set_ylabel(unit, parse_math=False)


def _legend(figure: Figure) -> None:
    """Put the names below the picture, as text: a record's name may hold what looks like maths."""
    legend = figure.legend(fontsize=7, loc="outside lower left", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return NOT_XML.sub(b"", out.getvalue())
