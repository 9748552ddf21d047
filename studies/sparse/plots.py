"""The study's plots: accuracy against memory, searches, and predicted against validated gains."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pockengine.studies.sparse.figures import PairFigures, SchemeRow
from pockengine.studies.sparse.predictions import DRAWN, RANDOM, SEARCH, Prediction, Search

MIB = 2**20
COLUMNS = 3
COLORS = {SEARCH: "#d62728", DRAWN: "#1f77b4", RANDOM: "#7f7f7f"}
STYLE, DPI = {"font.size": 8, "axes.grid": True, "grid.alpha": 0.3}, 110
LINES = (":", "-")
"""Line styles of the smaller and the larger budget."""
MARKERS = "osD^vP*X<>"
LEAST_MIB = 2**-10
"""Minimum on a logarithmic axis: 1 KiB."""


def draw_accuracy(figures: Sequence[PairFigures], path: Path) -> Path:
    """Draw test accuracy against extra memory for every scheme, a panel for each pair."""
    names = list(dict.fromkeys(row.scheme for one in figures for row in one.rows))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(figures))
        for one, axes in zip(figures, panels, strict=True):
            for row in one.rows:
                _point(axes, row, names.index(row.scheme))
            axes.set_title(one.pair)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        known = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            known.values(), known.keys(), loc="outside upper center", ncols=5, frameon=False
        )
        figure.supxlabel("MiB beyond inference, states included")
        figure.supylabel("test accuracy, %")
        figure.savefig(path, dpi=DPI)
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


def draw_searches(groups: Sequence[Sequence[Search]], path: Path) -> Path:
    """Draw the best predicted gain so far against evaluations, each search and its control.

    A panel has the groups of a pair: a line per sampler and budget, the median of its seeds, with a
    band from minimum to maximum; gains are shares of the largest gain of any search in the group.
    """
    pairs = list(dict.fromkeys(group[0].pair for group in groups))
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(pairs))
        for pair, axes in zip(pairs, panels, strict=True):
            same = [group for group in groups if group[0].pair == pair]
            by_budget = sorted(same, key=lambda group: group[0].budget)
            for group, style in zip(by_budget, LINES, strict=False):
                _budget(axes, group, style)
            axes.set_title(pair)
            axes.set_ylim(0, 105)
            if axes.lines:
                axes.legend(frameon=False, loc="lower right", fontsize=6)
        figure.supxlabel("evaluations")
        figure.supylabel("best predicted gain so far, % of the most found within the budget")
        figure.savefig(path, dpi=DPI)
    return path


def _budget(axes: Axes, searches: Sequence[Search], style: str) -> None:
    """Draw the searches of one pair within one budget."""
    most = max((gain for search in searches for gain in search.curve), default=0.0) or 1.0
    for sampler in COLORS:
        curves = [one.curve for one in searches if one.sampler == sampler and one.curve]
        if not curves:
            continue
        shares = 100 * np.array(list(zip(*curves, strict=False))) / most
        steps = range(1, len(shares) + 1)
        label = f"{sampler}, {searches[0].budget / 1024:,.0f} KiB"
        color = COLORS[sampler]
        axes.plot(steps, np.median(shares, axis=1), style, color=color, label=label)
        axes.fill_between(steps, shares.min(axis=1), shares.max(axis=1), color=color, alpha=0.1)


def draw_predictions(predictions: Sequence[Prediction], path: Path) -> Path:
    """Draw validated gains against predicted ones, a panel for each pair."""
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(predictions))
        for one, axes in zip(predictions, panels, strict=True):
            axes.plot(
                [100 * gain for gain in one.predicted],
                [100 * accuracy for accuracy in one.validated],
                "o",
            )
            rho = "no rank correlation" if one.rho is None else f"rank correlation {one.rho:.2f}"
            axes.set_title(f"{one.pair}\n{rho}")
        figure.supxlabel("predicted gain over the head alone, hundredths (points, or of loss)")
        figure.supylabel("accuracy on the validation part, %")
        figure.savefig(path, dpi=DPI)
    return path


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with this many panels, at most COLUMNS side by side."""
    columns = min(COLUMNS, max(1, count))
    rows = max(1, ceil(count / columns))
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in panels[count:]:
        unused.set_visible(False)
    return figure, panels[:count]
