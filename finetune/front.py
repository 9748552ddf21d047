"""Reports of a search: the front as a picture, the race, and costs on all devices."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.table import Table

from pockengine.compiler.compile import find_scheme
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import Scheme
from pockengine.devices import Device
from pockengine.errors import CompileError, FinetuneError
from pockengine.extras import pip_command
from pockengine.finetune.candidates import SchemeCandidate
from pockengine.finetune.cost import CostModel
from pockengine.finetune.judges import ACCURACY, Judge
from pockengine.finetune.race import Standing
from pockengine.finetune.ranks import rank_correlation
from pockengine.finetune.search import Front

STYLE = {"svg.hashsalt": "pockengine", "font.size": 8}
FRONT, CONTROL = "#3182bd", "#e6550d"

Count = Callable[[Scheme, Device], int]
"""Counts a step's instructions; FinetuneError if the device has no counter."""


def draw_front(
    fronts: Mapping[str, Front], memory_bytes: int | None, title: str, path: Path
) -> None:
    """Draw predicted gain over memory, and over evaluations; the first front is the result.

    `memory_bytes` is the budget's line. FinetuneError if matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FinetuneError(
            f"a picture needs the package matplotlib ({pip_command('search')})"
        ) from error
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        plane, curves = figure.subplots(1, 2)
        for (name, front), color in zip(fronts.items(), _colors(len(fronts)), strict=True):
            memory = [point.cost.memory_bytes / 1e3 for point in front.points]
            gains = [100 * point.gain for point in front.points]
            size = 4 + 3 * len(plane.lines)  # later fronts are rings around earlier ones
            face = "none" if plane.lines else color
            plane.plot(
                memory, gains, "o", markersize=size, color=color, markerfacecolor=face, label=name
            )
            steps = range(1, len(front.curve) + 1)
            curves.plot(steps, [100 * gain for gain in front.curve], color=color, label=name)
        if memory_bytes is not None:
            plane.axvline(memory_bytes / 1e3, color="black", linewidth=0.8, label="budget")
        plane.set_xlabel("memory beyond inference, kB: arena and optimizer states")
        plane.set_ylabel("predicted gain over the head alone, hundredths")
        curves.set_xlabel("schemes evaluated")
        curves.set_ylabel("best predicted gain within the budget, hundredths")
        for axis in (plane, curves):
            axis.legend(fontsize=6, loc="lower right")
        figure.suptitle(title, parse_math=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _colors(count: int) -> list[str]:
    return [FRONT, *[CONTROL, "#31a354", "#756bb1"] * count][:count]


def race_table(
    results: Sequence[Standing], found: Sequence[SchemeCandidate], judge: Judge = ACCURACY
) -> Table:
    """Return each scheme's score and predicted gain, and their rank correlation."""
    by_scheme = {one.scheme: one for one in found}
    known = [(by_scheme[one.scheme].gain, one.mean) for one in results]
    pairs = [(gain, mean) for gain, mean in known if gain is not None]
    correlation = rank_correlation([gain for gain, _ in pairs], [mean for _, mean in pairs])
    agreement = "too few to rank" if correlation is None else f"rank correlation {correlation:+.2f}"
    title = f"Predicted gain, and {judge.name} on the validation set by real training"
    table = Table(title=title, caption=agreement, box=SIMPLE)
    table.add_column("scheme")
    for heading in ("predicted", judge.heading, "spread", "seeds", "rate", "beyond inference"):
        table.add_column(heading, justify="right")
    for result in results:
        one = by_scheme[result.scheme]
        gain = "" if one.gain is None else f"{100 * one.gain:.2f}"
        numbers = (judge.cell(result.mean), judge.spread(result.spread))
        seeds, rate = str(len(result.scores)), f"{result.recipe.rate:g}"
        table.add_row(
            one.scheme.name, gain, *numbers, seeds, rate, f"{one.cost.memory_bytes:,} bytes"
        )
    return table


def device_table(
    graph: Graph, training: Training, devices: Sequence[Device], count: Count | None = None
) -> Table:
    """Return the cost of a scheme's step on each device; `count` measures instructions."""
    scheme = find_scheme(training.scheme, graph)
    caption = "time is modelled: the kernels' estimated cycles, on all cores at the nominal clock"
    table = Table(title=f"{scheme.name} on each device", caption=caption, box=SIMPLE)
    table.add_column("device")
    headings = ["arena, bytes", "arena beyond inference", "optimizer states", "modelled ms"]
    for heading in [*headings, *(["instructions, 1 thread"] if count else [])]:
        table.add_column(heading, justify="right")
    for device in devices:
        row = _costs(graph, training, scheme, device)
        table.add_row(device.name, *row, *([_counted(count, scheme, device)] if count else []))
    return table


def _costs(graph: Graph, training: Training, scheme: Scheme, device: Device) -> list[str]:
    """Return a device's row; GPUs have no int8 kernels."""
    try:
        cost = CostModel(graph, device, training.optimizer, training.integers).cost(scheme)
    except CompileError:
        return ["not compiled", "", "", ""]
    time = cost.milliseconds(device)
    row = [f"{value:,}" for value in (cost.arena_bytes, cost.extra_bytes, cost.state_bytes)]
    return [*row, "no clock known" if time is None else f"{time:.2f}"]


def _counted(count: Count, scheme: Scheme, device: Device) -> str:
    try:
        return f"{count(scheme, device):,}"
    except (CompileError, FinetuneError):
        return "not counted"
