"""Times every convolution and matmul kernel of a model on this machine, each on its own.

    python -m pockengine.backends.c.bench_kernels --model=mobilenet_v2 --threads=2 --json=out.jsonl

A kernel's figure is the median of many short samples with its operands in the cache, as far as they
fit; in a step they are colder. Kernels of the same shape are timed once and counted.
"""

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pockengine.backends.c.build import FLAGS, RUNTIME, find_toolchain
from pockengine.backends.c.conv import conv_kernel
from pockengine.backends.c.kernel import Kernel
from pockengine.compiler.ir import Builder, Graph, Node, Value
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ops import node_cost
from pockengine.devices.schema import load_device
from pockengine.errors import BuildError


@dataclass(frozen=True)
class Layer:
    """A square convolution: input size and channels, window, output channels, stride, groups."""

    size: int
    channels: int
    kernel: int
    features: int
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        kind = "dw" if self.groups > 1 else "conv"
        return f"{kind}{self.kernel} {self.size}x{self.channels} > {self.features} s{self.stride}"


@dataclass(frozen=True)
class Timing:
    """A kernel's median and best time in seconds, and how often the model's step runs it."""

    layer: Layer
    node: Node
    kernel: Kernel
    seconds: float
    best: float
    count: int

    @property
    def gflops(self) -> float:
        """Multiplications and additions, in 1e9 a second."""
        return 2e-9 * node_cost(self.node) / self.seconds

    @property
    def gbytes(self) -> float:
        """Bytes of operands and results, in 1e9 a second."""
        values = (*self.node.operands, *self.node.results)
        return 1e-9 * sum(value.type.nbytes for value in values) / self.seconds


def mobilenet_v2() -> Iterator[Layer]:
    """Layers of MobileNetV2 at 224x224."""
    yield Layer(224, 3, 3, 32, 2)
    channels, size = 32, 112
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for expand, features, repeat, first in (*rows, (6, 160, 3, 2), (6, 320, 1, 1)):
        for index in range(repeat):
            stride, hidden = (first if index == 0 else 1), channels * expand
            if expand > 1:
                yield Layer(size, channels, 1, hidden)
            yield Layer(size, hidden, 3, hidden, stride, hidden)
            size //= stride
            yield Layer(size, hidden, 1, features)
            channels = features
    yield Layer(7, 320, 1, 1280)
    yield Layer(1, 1280, 1, 1000)


def resnet50() -> Iterator[Layer]:
    """Layers of ResNet-50 at 224x224."""
    yield Layer(224, 3, 7, 64, 2)
    channels, size = 64, 56
    for features, repeat, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(repeat):
            stride = first if index == 0 else 1
            yield Layer(size, channels, 1, features)
            yield Layer(size, features, 3, features, stride)
            if index == 0:
                yield Layer(size, channels, 1, features * 4, stride)
            size //= stride
            yield Layer(size, features, 1, features * 4)
            channels = features * 4
    yield Layer(1, 2048, 1, 1000)


MODELS = {"mobilenet_v2": mobilenet_v2, "resnet50": resnet50}


def layer_nodes(layer: Layer, batch: int) -> list[Node]:
    """The forward convolution and its two gradients."""
    g = Builder(Graph("bench"))
    side = (layer.kernel - 1) // 2
    attrs = {"stride": (layer.stride,) * 2, "padding": (side,) * 4, "groups": layer.groups}
    x = g.input("x", f32(batch, layer.size, layer.size, layer.channels))
    shape = (layer.kernel, layer.kernel, layer.channels // layer.groups, layer.features)
    w = g.input("w", f32(*shape))
    y = g.conv2d(x, w, **attrs)
    dy = g.input("dy", y.type)
    results: list[Value] = [y]
    if layer.channels > 3:
        results.append(g.conv2d_dx(dy, w, input_shape=x.shape, **attrs))
    results.append(g.conv2d_dw(x, dy, weight_shape=w.shape, **attrs))
    return [result.node for result in results if result.node is not None]


def bench_program(kernels: list[tuple[Node, Kernel]], threads: int) -> str:
    """A C program that prints the median seconds of each kernel, one to a line."""
    sources = dict.fromkeys(kernel.source for _, kernel in kernels)
    calls, rows = [], []
    for index, (node, kernel) in enumerate(kernels):
        values = (*node.operands, *node.results)
        arguments = ", ".join(f"p[{i}]" for i in range(len(values) + 1))
        calls.append(
            f"static void call_{index}(pe_worker *w, void **p) {{\n"
            f"    {kernel.symbol}(w, {arguments});\n}}"
        )
        sizes = ", ".join(str(value.type.nbytes) for value in values)
        rows.append(
            f"    {{call_{index}, {{{sizes}, {kernel.scratch_bytes}}}, {len(values) + 1}}},"
        )
    return "\n\n".join(
        [
            '#include "bench.h"',
            *sources,
            *calls,
            "static const bench benches[] = {\n" + "\n".join(rows) + "\n};",
            f"int main(void) {{\n    return run_benches(benches, {len(kernels)}, {threads});\n}}\n",
        ]
    )


def time_kernels(kernels: list[tuple[Node, Kernel]], threads: int) -> list[tuple[float, float]]:
    """Median and best seconds of each kernel, compiled and run as one program.

    Raises BuildError with the compiler's words when it does not compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "bench.c", Path(folder) / "bench"
        source.write_text(bench_program(kernels, threads))
        toolchain = find_toolchain(load_device("host"))
        files = [str(source), str(RUNTIME / "pe_pool.c")]
        command = [
            *toolchain.command,
            *FLAGS,
            f"-I{RUNTIME}",
            *files,
            "-pthread",
            "-o",
            str(program),
        ]
        built = subprocess.run(
            command, capture_output=True, text=True, check=False, env=toolchain.environment
        )
        if built.returncode:
            raise BuildError(f"the benchmark does not compile: {built.stderr[-2000:]}")
        ran = subprocess.run([program], capture_output=True, text=True, check=True)
    lines = (line.split() for line in ran.stdout.splitlines())
    return [(float(median), float(best)) for median, best in lines]


def time_model(model: str, batch: int, threads: int, only: str) -> list[Timing]:
    """Time each different layer of a model once."""
    device = load_device("host")
    counts = Counter(MODELS[model]())
    work = [
        (layer, node, conv_kernel(node, device))
        for layer in counts
        for node in layer_nodes(layer, batch)
        if only in f"{node.op} {layer}"
    ]
    seconds = time_kernels([(node, kernel) for _, node, kernel in work], threads)
    return [
        Timing(layer, node, kernel, *times, counts[layer])
        for (layer, node, kernel), times in zip(work, seconds, strict=True)
    ]


def print_table(timings: list[Timing], console: Console) -> None:
    """Print one line for each kernel and the sum by op."""
    table = Table("op", "layer", "kernel", "count", "us", "best", "GFLOP/s", "GB/s", "share")
    total = sum(t.seconds * t.count for t in timings)
    for t in timings:
        share = f"{100 * t.seconds * t.count / total:.1f} %"
        figures = (
            f"{t.seconds * 1e6:.1f}",
            f"{t.best * 1e6:.1f}",
            f"{t.gflops:.1f}",
            f"{t.gbytes:.1f}",
            share,
        )
        tile = t.kernel.symbol.split("__")[0].rsplit("_", 1)[1]
        table.add_row(t.node.op, str(t.layer), tile, str(t.count), *figures)
    console.print(table)
    for op in dict.fromkeys(t.node.op for t in timings):
        mine = [t for t in timings if t.node.op == op]
        seconds = sum(t.seconds * t.count for t in mine)
        flops = sum(2 * node_cost(t.node) * t.count for t in mine)
        console.print(f"{op}: {seconds * 1e3:.2f} ms, {flops / seconds / 1e9:.1f} GFLOP/s")
    console.print(f"all: {total * 1e3:.2f} ms")


@click.command()
@click.option("--model", type=click.Choice(sorted(MODELS)), default="mobilenet_v2")
@click.option("--batch", default=1, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="Part of the op and layer that must match.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="One object a line.")
def main(model: str, batch: int, threads: int, only: str, json_file: Path | None) -> None:
    """Time every kernel of a model on this machine."""
    timings = time_model(model, batch, threads, only)
    print_table(timings, Console(width=120))
    if json_file:
        lines = [
            {
                "model": model,
                "batch": batch,
                "threads": threads,
                "op": t.node.op,
                "layer": str(t.layer),
                "kernel": t.kernel.symbol,
                "count": t.count,
                "seconds": t.seconds,
                "best_seconds": t.best,
                "gflops": t.gflops,
                "gbytes": t.gbytes,
            }
            for t in timings
        ]
        json_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
