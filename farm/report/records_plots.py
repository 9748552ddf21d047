"""Pictures of stored figures: bars of the newest, lines over the commits."""

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from pockengine.farm.bench.suite import OURS
from pockengine.farm.report.plots import STYLE
from pockengine.farm.results.results import Record
from pockengine.farm.results.trend import Trend

WIDTH = 9  # inches
MOST_COMMITS = 40  # on an axis
SHORT = EngFormatter(places=3, sep=" ")
"""69409087 as 69.409 M."""


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
        colours = ["#3182bd" if record.engine == OURS else "#bdbdbd" for _, record in named]
        drawn = axis.barh(range(len(named)), values, xerr=spreads, color=colours)
        axis.bar_label(drawn, labels=[SHORT(value) for value in values], padding=3)
        axis.xaxis.set_major_formatter(EngFormatter())
        axis.set_yticks(range(len(named)), [name for name, _ in named], parse_math=False)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_xlabel(named[0][1].unit)
        return _svg(figure)


def lines(trends: Sequence[Trend]) -> bytes:
    """Return an SVG with a line for each trend; commits stand in their order, oldest first."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.2 + 0.16 * len(trends)), layout="constrained")
        axis = figure.subplots()
        order = sorted({(point.time, point.commit) for trend in trends for point in trend.points})
        names = list(dict.fromkeys(commit for _, commit in order))[-MOST_COMMITS:]
        places = {commit: place for place, commit in enumerate(names)}
        for trend in trends:
            points = [point for point in trend.points if point.commit in places]
            x = [places[point.commit] for point in points]
            axis.plot(x, [point.value for point in points], marker="o", markersize=3, label="")
            axis.lines[-1].set_label(trend.name.replace("$", r"\$"))
        axis.set_xticks(range(len(names)), names, rotation=90)
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(EngFormatter())
        axis.set_ylabel(trends[0].unit)
        figure.legend(fontsize=6, loc="outside lower left")
        return _svg(figure)


def _svg(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
