"""Bars of step times, and a roofline: performance of each model against the machine's peak."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from pockengine.backends.peaks import Peaks
from pockengine.farm.bench.running import OURS
from pockengine.farm.bench.suite import FULL, SuiteResult
from pockengine.farm.bench.suite_table import best_peer, own_line

STYLE = {"svg.hashsalt": "pockengine", "font.size": 8}
INTENSITIES = (0.1, 1000.0)  # operations a byte, from copies to large matrix products


def draw_bars(results: Sequence[SuiteResult], path: Path) -> None:
    """Draw each engine's time over ours, model by model; a bar of 1 is as fast as ours."""
    lines = [line for result in results for line in result.lines]
    engines = list(dict.fromkeys(line.engine for line in lines if line.engine != OURS))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 0.5 + 1.1 * len(results)), layout="constrained")
        axis = figure.subplots()
        height = 0.85 / len(engines)
        for index, engine in enumerate(engines):
            places, values = _ratios(results, engine)
            bars = axis.barh(np.array(places) + index * height, values, height, label=engine)
            axis.bar_label(bars, fmt="%.1f", fontsize=5, padding=1)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_yticks(
            np.arange(len(results)) + 0.425,
            [f"{result.model} / {result.batch}" for result in results],
            parse_math=False,
        )
        axis.invert_yaxis()
        axis.set_xlabel("time of a full training step over ours (log scale)")
        axis.legend(fontsize=6, loc="lower right")
        figure.savefig(path, metadata={"Date": None})


def _ratios(results: Sequence[SuiteResult], engine: str) -> tuple[list[int], list[float]]:
    """Return the models that an engine has, by their places, and its times over ours."""
    places, values = [], []
    for place, result in enumerate(results):
        own = own_line(result)
        for line in result.lines:
            if line.engine == engine and own is not None:
                places.append(place)
                values.append(line.timing.median / own.timing.median)
    return places, values


def draw_roofline(results: Sequence[SuiteResult], peaks: Peaks, path: Path) -> None:
    """Draw ours and the best peer under the roofs of arithmetic, memory and the largest cache."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axis = figure.subplots()
        x = np.geomspace(*INTENSITIES, 200)
        for size, rate in sorted(peaks.bandwidths.items())[2:]:
            where = "memory" if rate == peaks.gbytes else f"{size >> 20} MiB"
            roof = np.minimum(peaks.gflops, x * rate)
            axis.plot(x, roof, linewidth=0.9, label=f"{where}: {rate:.0f} GB/s")
        for result in results:
            _draw_model(axis, result)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("operations a byte that our kernels read and write")
        axis.set_ylabel("GFLOP/s of a full training step")
        axis.set_title(f"measured, threads: {peaks.threads}: {peaks.gflops:.0f} GFLOP/s")
        axis.plot([], [], "o", color="#3182bd", label="ours")
        axis.plot([], [], "x", color="#e6550d", label="best peer")
        axis.legend(fontsize=6, loc="lower right")
        figure.savefig(path, metadata={"Date": None})


def _draw_model(axis: mpl.axes.Axes, result: SuiteResult) -> None:
    """Draw one model's two points and the line between them."""
    own, work = own_line(result), result.work
    if own is None or FULL not in result.compiled:
        return
    intensity = work.flops / work.nbytes
    rates = [work.flops / line.timing.median / 1e6 for line in (own, best_peer(result))]
    axis.plot([intensity] * 2, rates, color="#999999", linewidth=0.6)
    axis.plot(intensity, rates[0], "o", color="#3182bd", markersize=4)
    axis.plot(intensity, rates[1], "x", color="#e6550d", markersize=4)
    axis.annotate(
        f"{result.model} / {result.batch}",
        (intensity, rates[0]),
        (3, 3),
        textcoords="offset points",
        fontsize=5,
        parse_math=False,
    )
