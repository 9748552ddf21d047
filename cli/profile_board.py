"""`pockengine profile MODEL --device rpi4`: where a step's modelled time goes on a board.

The program runs under emulation. Each kernel is a marked region, of which farm/cycles models the
instructions on one core of the board.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.backends.native.profile import MARKED, Timed, example_inputs, profiled_step
from pockengine.backends.placement import describe, kernel_nodes
from pockengine.backends.protocol import Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.errors import FarmError
from pockengine.farm.cycles.modelled import Cycles, Modelled, model_regions, what_it_means
from pockengine.terminal import PlainConsole, counted

WIDTH = 170
STEPS = 2
"""The first warms the caches; the second is shown."""
LEGEND = (
    "MAC/cycle: multiply-adds; core, cache, DRAM, other: shares of the kernel's cycles spent on "
    "operands and pipes, on later levels of the cache, on memory, on branches and instruction "
    "fetch; first: the layer of the first call"
)


@dataclass(frozen=True)
class ModelledKernel:
    """All calls of one kernel in a step, with their modelled regions."""

    symbol: str
    calls: Sequence[tuple[Node, Modelled]]

    @property
    def nodes(self) -> list[Node]:
        """The nodes that call it, in order."""
        return [node for node, _ in self.calls]

    @property
    def milliseconds(self) -> float:
        """The modelled time of all calls."""
        return sum(region.milliseconds for _, region in self.calls)

    @property
    def instructions(self) -> int:
        """The instructions of all calls."""
        return sum(region.instructions for _, region in self.calls)

    @property
    def cycles(self) -> Cycles:
        """The cycles of all calls, by cause."""
        return Cycles(
            *map(sum, zip(*(astuple(region.cycles) for _, region in self.calls), strict=True))
        )

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of all calls."""
        return sum(map(node_cost, self.nodes))


@dataclass(frozen=True)
class ModelledStep:
    """A step's kernels, the longest first, and what runs before them."""

    kernels: Sequence[ModelledKernel]
    before: Modelled

    @property
    def milliseconds(self) -> float:
        """The modelled time of the step."""
        return self.before.milliseconds + sum(each.milliseconds for each in self.kernels)

    @property
    def instructions(self) -> int:
        """The instructions of the step."""
        return self.before.instructions + sum(each.instructions for each in self.kernels)


def model_kernels(
    program: Program, backend: Timed, device: str, progress: Progress
) -> ModelledStep:
    """Model a step on example data, kernel by kernel; FarmError if it cannot run here."""
    entry = program.entries["train"]
    inputs, nodes = example_inputs(entry.graph), kernel_nodes(entry)
    with profiled_step(
        program, backend, inputs, steps=STEPS, head=MARKED, progress=progress
    ) as built:
        progress(f"model {STEPS} steps of {len(nodes)} kernels under emulation")
        regions = model_regions(device, built.command)
    if len(regions) != STEPS * (len(nodes) + 1):
        raise FarmError(f"{STEPS} steps of {len(nodes)} kernels marked {len(regions)} regions")
    before, *last = regions[-len(nodes) - 1 :]
    calls: dict[str, list[tuple[Node, Modelled]]] = {}
    for node, region in zip(nodes, last, strict=True):
        symbol, _ = backend.timed(node, entry.choices.get(node))
        calls.setdefault(symbol, []).append((node, region))
    kernels = [ModelledKernel(symbol, tuple(same)) for symbol, same in calls.items()]
    return ModelledStep(sorted(kernels, key=lambda each: -each.milliseconds), before)


def print_modelled(title: str, step: ModelledStep, device: str, top: int, only: str) -> None:
    """Print the longest kernels, of those whose symbol, shapes or layer contain `only`."""
    table = Table(title=title, caption=LEGEND, box=SIMPLE)
    table.add_column("kernel", no_wrap=True)
    heads = ("calls", "M instr.", "ms", "share", "MAC/cycle", "core", "cache", "DRAM", "other")
    for heading in heads:
        table.add_column(heading, justify="right")
    table.add_column("first", no_wrap=True)
    shown = [each for each in step.kernels if only in f"{each.symbol} {describe(each.nodes[0])}"]
    check_shown(shown, only)
    for each in shown[: top or None]:
        name, layer = short_symbol(each.symbol), each.nodes[0].scope or ""
        table.add_row(name, *_cells(each, step.milliseconds), layer)
    console = PlainConsole(WIDTH)
    console.print(table)
    console.print(
        f"{step.milliseconds:.2f} ms and {step.instructions / 1e6:.1f} M instructions in "
        f"{counted(sum(len(each.calls) for each in step.kernels), 'call')} of "
        f"{counted(len(step.kernels), 'kernel')}. "
        f"{what_it_means(device)}"
    )


def check_shown(shown: Sequence[object], only: str) -> None:
    """Raise UsageError if no kernel is left to show."""
    if not shown:
        raise click.UsageError(
            f"no kernel's symbol, shapes or layer contains {only!r}; leave --only out to see all"
        )


def short_symbol(symbol: str) -> str:
    """Strip the part that all symbols share, and the hash."""
    name, mark, _ = symbol.removeprefix("pe_").rpartition("__")
    return name if mark else symbol.removeprefix("pe_").rpartition("_")[0]


def _cells(kernel: ModelledKernel, whole: float) -> Iterator[str]:
    cycles = kernel.cycles
    yield str(len(kernel.nodes))
    yield f"{kernel.instructions / 1e6:.2f}"
    yield f"{kernel.milliseconds:.3f}"
    yield f"{kernel.milliseconds / whole:.1%}"
    yield f"{kernel.multiply_adds / cycles.total:.2f}"
    for part in (cycles.core, cycles.cache, cycles.dram, cycles.branch + cycles.fetch):
        yield f"{part / cycles.total:.0%}"
