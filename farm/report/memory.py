"""Draw the arena over a training step: the bytes of each value, from kernel to kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pockengine.compiler.program import Entry
from pockengine.farm.bench.suite import SuiteResult

MIB = 2**20
KINDS = {
    "input": "#7f7f7f",
    "forward only": "#c7e9c0",
    "saved for backward": "#6baed6",
    "gradient": "#e6550d",
    "scratch": "#bdbdbd",
}
NAMED_SHARE = 0.03  # of the arena: lower blocks have no room for their name


@dataclass(frozen=True)
class ArenaBlock:
    """Bytes of the arena from one kernel to another, both included, and their owner."""

    first: int
    last: int
    offset: int
    size: int
    kind: str
    name: str


def blocks(entry: Entry) -> list[ArenaBlock]:
    """Return the place of every value and scratch over the order of an entry."""
    places = {node: index for index, node in enumerate(entry.graph.nodes)}
    loss = entry.graph.outputs["loss"].node
    turn = places[loss] if loss is not None else len(places)
    last: dict[object, int] = {}
    for node, index in places.items():
        for operand in node.operands:
            last[operand] = index
    drawn = []
    for value, where in entry.plan.values.items():
        first = -1 if value.node is None else places[value.node]
        end = max(first, last.get(value, first))
        kind = _kind(first, end, turn)
        scope = value.node.scope if value.node is not None else ""
        drawn.append(
            ArenaBlock(
                first, end, where.offset, size=where.size, kind=kind, name=scope or value.name
            )
        )
    for node, where in entry.plan.scratch.items():
        index = places[node]
        drawn.append(
            ArenaBlock(
                index, index, where.offset, size=where.size, kind="scratch", name=node.scope or ""
            )
        )
    return drawn


def _kind(first: int, last: int, turn: int) -> str:
    """Classify a value by its position relative to the loss, between forward and backward pass."""
    if first < 0:
        return "input"
    if first > turn:
        return "gradient"
    return "saved for backward" if last > turn else "forward only"


def draw_memory(result: SuiteResult, folder: Path) -> Path:
    """Draw the arenas of all schemes of one model, one below the other, on one scale."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {
        name: compiled.program.entries["train"] for name, compiled in result.compiled.items()
    }
    with mpl.rc_context({"svg.hashsalt": "pockengine", "font.size": 8}):
        figure = Figure(figsize=(11, 2.6 * len(entries)), layout="constrained")
        axes = figure.subplots(len(entries), 1, sharey=True, squeeze=False)[:, 0]
        for axis, (scheme, entry) in zip(axes, entries.items(), strict=True):
            _draw(axis, scheme, entry)
        axes[-1].set_xlabel("kernel of the step, in order")
        handles = [Patch(color=color, label=kind) for kind, color in KINDS.items()]
        axes[0].legend(handles=handles, loc="upper right", ncols=len(handles))
        path = folder / memory_file(result)
        figure.savefig(path, metadata={"Date": None})
    return path


def memory_file(result: SuiteResult) -> str:
    """Return the name of the picture of one model and batch."""
    return f"memory-{result.model}-{result.batch}.svg"


def _draw(axis: Axes, scheme: str, entry: Entry) -> None:
    """Draw one scheme's arena."""
    arena = blocks(entry)
    for kind, color in KINDS.items():
        for block in (one for one in arena if one.kind == kind):
            axis.broken_barh(
                [(block.first, block.last - block.first + 1)],
                (block.offset / MIB, block.size / MIB),
                facecolors=color,
                edgecolors="white",
                linewidth=0.15,
            )
    for block in _named(arena, len(entry.graph.nodes)):
        middle = (block.first + block.last + 1) / 2
        y = (block.offset + block.size / 2) / MIB
        axis.text(middle, y, block.name, ha="center", va="center", fontsize=5, parse_math=False)
    plan = entry.plan
    axis.set_title(
        f"{scheme}: {plan.size / MIB:.2f} MiB, largest live set {plan.lower_bound / MIB:.2f} MiB"
    )
    axis.set_xlim(-1, len(entry.graph.nodes))
    axis.set_ylabel("MiB of the arena")


def _named(arena: Sequence[ArenaBlock], kernels: int) -> list[ArenaBlock]:
    """Return the blocks that are large and long enough to have their names in them."""
    largest = max((one.offset + one.size for one in arena), default=0)
    return [
        one
        for one in arena
        if one.size > NAMED_SHARE * largest and one.last - one.first > kernels // 10
    ]
