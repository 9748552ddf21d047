"""Memory of tiny-training's 15 published schemes, by their count and by our plan.

    bazel run //studies/tiny_training -- --out DIR

The nets have random weights, as memory depends on shapes alone; a batch is one picture.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import torch
from rich.table import Table
from torch import nn

from pockengine import Int8, from_torch
from pockengine.backends.protocol import Backend
from pockengine.backends.registry import backend_for
from pockengine.backends.within_budget import within_budget
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import lower_bound
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import save_scheme
from pockengine.compiler.target import Target
from pockengine.devices import load_device
from pockengine.errors import BudgetError
from pockengine.models.mcunet import ConvUnit, MCUNet
from pockengine.models.pretrained import INT8_SPECS
from pockengine.models.tiny_training import (
    F32,
    Published,
    Saved,
    convert,
    published,
    saved_bits,
)
from pockengine.terminal import PlainConsole

CLASSES, SIZE = 10, 128
"""Classes and resolution with which they searched their schemes."""
KB = 1024
SOURCE = "mit-han-lab/tiny-training, compilation/mcu_ir_gen.py"
COLUMNS = (
    "their count, 8 bits",
    "ours, 8 bits",
    "their count, f32",
    "ours, f32",
    "most alive after the loss",
    "arena, inference",
    "arena, training",
    "extra",
    "inference, int8",
    "training, int8",
    "within theirs",
    "theirs",
)

PEAKS = {"mcunet-5fps": 173, "mbv2-w0.35": 141, "proxyless-w0.3": 135}
"""Peak memory in KB of a sparse, reordered scheme of each net in arXiv 2206.15472."""


NOTE = """\
Their count is of what a step keeps for its backward pass (activations that a trained weight reads,
a bit of mask for each output) and of what it trains, at 8 bits (biases 32); it was what they
searched under. Ours is of what our compiled step keeps and trains. The arena is what a board needs;
inference alone needs as much as its largest layers, and a step's backward pass, which these schemes
keep to the small last layers, must pass that to cost anything more. The columns of int8 are the
arenas with weights, activations, the picture, and gradients that meet them in a product as such;
the one within theirs is of a step whose memory budget is the peak that they published, in KB of
1000 bytes, for a scheme that they do not name. All in KB of 1024 bytes."""


@dataclass(frozen=True)
class Needs:
    """Bytes of one scheme under our plan, compared with their count.

    `saved` is alive between forward and backward pass, `masks` is its part in bits; `backward` is
    the maximum alive from the loss on. `predict` and `train` are the arenas, `integers` the same
    two in int8, and `budgeted` the largest in int8 with the published peak as the budget.
    """

    theirs: Saved
    theirs_f32: Saved
    saved: int
    masks: int
    backward: int
    predict: int
    train: int
    integers: tuple[int, int]
    budgeted: int

    @property
    def ours(self) -> float:
        """KB of saved and trained tensors if activations and weights had 8 bits, as theirs."""
        return ((self.saved - self.masks) / 4 + self.masks + self.theirs.weights / 8) / KB

    @property
    def ours_f32(self) -> float:
        """KB of saved and trained tensors as they are."""
        return (self.saved + self.theirs_f32.weights / 8) / KB


def build_net(net: str) -> MCUNet:
    """Return one of their nets for 10 classes, with random weights from seed 0.

    Every convolution ends in a clamp, as the published int8 weights do (`models/pretrained.py`).
    """
    torch.manual_seed(0)
    model = MCUNet(INT8_SPECS[net], CLASSES, norm=False)
    for unit in model.modules():
        if isinstance(unit, ConvUnit):
            unit.act = nn.Hardtanh(-1.0, 1.0)
    model.eval()
    return model


def net_graph(model: MCUNet, size: int = SIZE) -> Graph:
    """Return a net's forward graph with a loss, for one picture of size x size."""
    return from_torch(model, (torch.zeros(1, 3, size, size),), loss="cross_entropy")


def int8_graph(graph: Graph) -> Graph:
    """Return a net's int8 graph, calibrated on random pictures: ranges do not affect memory."""
    pictures = np.random.default_rng(0).uniform(-1, 1, graph.input("x").shape)
    quantized, _ = Int8({"x": pictures}, inputs=("x",)).apply(graph)
    return quantized


def int8_arenas(scheme: Published, graph: Graph, target: Target) -> tuple[int, int]:
    """Return the int8 arenas of prediction and of a step of a graph."""
    training = Training(convert(scheme.config, graph, str(scheme)))
    entries = compile_program(graph, training, target=target).entries
    return entries["predict"].plan.size, entries["train"].plan.size


def int8_within(scheme: Published, graph: Graph, backend: Backend, budget: int) -> int:
    """Return the int8 arena for a budget in bytes, or the smallest one above it."""
    training = Training(convert(scheme.config, graph, str(scheme)), memory_budget=budget)
    try:
        program, _ = within_budget(partial(compile_program, graph, training), backend)
        return program.arena_bytes
    except BudgetError as error:
        return error.least


def needs_of(
    scheme: Published, graph: Graph, backend: Backend, integers: Graph | None = None
) -> Needs:
    """Compile a published scheme and return its memory; `integers` is the graph in int8."""
    target = backend.target()
    training = Training(convert(scheme.config, graph, str(scheme)))
    program = compile_program(graph, training, target=target)
    train, loss = program.entries["train"], program.entries["train"].graph.outputs["loss"].node
    assert loss is not None
    integers = integers or int8_graph(graph)
    place = train.graph.nodes.index(loss)
    late = [b for b in lifetimes(train.graph, target.scratch_bytes).buffers if b.last > place]
    saved = [buffer for buffer in late if buffer.first <= place]
    masks = [buffer for buffer in saved if not all(v.dtype.is_float for v in buffer.values)]
    return Needs(
        saved_bits(scheme.config, graph),
        saved_bits(scheme.config, graph, F32),
        sum(buffer.size for buffer in saved),
        sum(buffer.size for buffer in masks),
        lower_bound([Buffer(b.size, max(b.first, place), b.last) for b in late]),
        program.entries["predict"].plan.size,
        train.plan.size,
        int8_arenas(scheme, integers, target),
        int8_within(scheme, integers, backend, 1000 * PEAKS[scheme.net]),
    )


@click.command()
@click.option("--device", default="stm32f746", show_default=True, help="A file of devices/.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="For scheme files.")
def main(device: str, out: Path | None) -> None:
    """Print the memory of the 15 schemes, and write each as a scheme file on request."""
    backend = backend_for(load_device(device))
    table = Table(caption=NOTE)
    table.add_column("scheme", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    if out is not None:
        out = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), out)
        out.mkdir(parents=True, exist_ok=True)
    graphs = {net: net_graph(build_net(net)) for net in INT8_SPECS}
    integers = {net: int8_graph(graph) for net, graph in graphs.items()}
    for one in published():
        graph = graphs[one.net]
        if out is not None:
            path = out / f"{one.net}-{one.budget_kb}kb.toml"
            save_scheme(convert(one.config, graph, str(one)), path, f"{one}: {SOURCE}")
        needs = needs_of(one, graph, backend, integers[one.net])
        table.add_row(str(one), *_row(needs), f"{PEAKS[one.net] * 1000 / KB:.1f}")
    PlainConsole(160).print(table)


def _row(needs: Needs) -> list[str]:
    theirs, f32 = needs.theirs.kilobytes, needs.theirs_f32.kilobytes
    plan = (needs.backward, needs.predict, needs.train, needs.train - needs.predict)
    bytes_ = (*plan, *needs.integers, needs.budgeted)
    numbers = (theirs, needs.ours, f32, needs.ours_f32, *(size / KB for size in bytes_))
    return [f"{number:.1f}" for number in numbers]


if __name__ == "__main__":
    main()
