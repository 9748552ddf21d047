"""The study's pictures: accuracy against memory, searches, and predicted against validated."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pockengine.studies.sparse.figures import PairFigures, SchemeRow
from pockengine.studies.sparse.predictions import DRAWN, RANDOM, SEARCH, Prediction, Search

MIB = 2**20
COLUMNS = 3
COLOURS = {SEARCH: "#d62728", DRAWN: "#1f77b4", RANDOM: "#7f7f7f"}
MARKERS = "osD^vP*X<>"
LEAST_MIB = 2**-10
"""Where a scheme that takes less is drawn on a logarithmic axis: 1 KiB."""


def draw_accuracy(figures: Sequence[PairFigures], path: Path) -> Path:
    """Draw test accuracy against extra memory for every scheme, a panel for each pair."""
    names = list(dict.fromkeys(row.scheme for one in figures for row in one.rows))
    with mpl.rc_context({"font.size": 8}):
        figure, panels = _panels(len(figures))
        for one, axes in zip(figures, panels, strict=True):
            for row in one.rows:
                _point(axes, row, names.index(row.scheme))
            axes.set_title(one.pair)
            axes.set_xscale("log")
            axes.set_xlabel("MiB beyond inference, states included")
            axes.set_ylabel("test accuracy, %")
            axes.grid(alpha=0.3)
        known = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            known.values(), known.keys(), loc="outside lower center", ncols=4, frameon=False
        )
        figure.savefig(path, dpi=110)
    return path


def _point(axes: Axes, row: SchemeRow, place: int) -> None:
    axes.errorbar(
        max(LEAST_MIB, row.memory_bytes / MIB),
        100 * row.mean,
        yerr=100 * row.spread,
        fmt=MARKERS[place % len(MARKERS)],
        color=f"C{place}",
        capsize=2,
        markersize=6,
        label=row.scheme,
    )


def draw_searches(searches: Sequence[Search], path: Path) -> Path:
    """Draw the best predicted gain so far against evaluations, each search and its control."""
    pairs = list(dict.fromkeys((search.pair, search.budget) for search in searches))
    with mpl.rc_context({"font.size": 8}):
        figure, panels = _panels(len(pairs))
        for (pair, budget), axes in zip(pairs, panels, strict=True):
            drawn = set()
            for search in (s for s in searches if (s.pair, s.budget) == (pair, budget)):
                label = None if search.sampler in drawn else search.sampler
                drawn.add(search.sampler)
                steps = range(1, len(search.curve) + 1)
                points = [100 * gain for gain in search.curve]
                axes.plot(steps, points, color=COLOURS[search.sampler], label=label, alpha=0.8)
            axes.set_title(f"{pair}, within {budget / 1024:,.0f} KiB")
            axes.set_xlabel("evaluations")
            axes.set_ylabel("best predicted gain, points")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        figure.savefig(path, dpi=110)
    return path


def draw_predictions(predictions: Sequence[Prediction], path: Path) -> Path:
    """Draw validated gains against predicted ones, a panel for each pair."""
    with mpl.rc_context({"font.size": 8}):
        figure, panels = _panels(len(predictions))
        for one, axes in zip(predictions, panels, strict=True):
            axes.plot(
                [100 * gain for gain in one.predicted],
                [100 * (accuracy - one.baseline) for accuracy in one.validated],
                "o",
            )
            rho = "" if one.rho is None else f", rank correlation {one.rho:.2f}"
            axes.set_title(f"{one.pair}{rho}")
            axes.set_xlabel("predicted gain, points")
            axes.set_ylabel("validated, points over the probe's baseline")
            axes.grid(alpha=0.3)
        figure.savefig(path, dpi=110)
    return path


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with that many panels, at most COLUMNS side by side."""
    columns = min(COLUMNS, max(1, count))
    rows = max(1, ceil(count / columns))
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    return figure, panels[:count]
