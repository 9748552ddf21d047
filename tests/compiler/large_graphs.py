"""Compile time against graph size: `python -m pockengine.tests.compiler.large_graphs`.

A chain of residual blocks, each of a product, a bias, a batch norm or a scale, an activation and a
sum; all params train. Sizes count the nodes after differentiation.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from pockengine.backends.c.backend import FUSION
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Graph, TensorType, Value
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.target import Target
from pockengine.tests.compiler.small_nets import NetBuilder

ROWS, WIDTH = 64, 32
NODES_OF_A_BLOCK = 20
"""Approximate number of nodes of a block after differentiation."""


def deep_net(blocks: int) -> Graph:
    """A residual net of many blocks; every fourth has a frozen scale to fold."""
    net = NetBuilder("deep")
    g = net.g
    x: Value = g.input("x", TensorType(F32, (ROWS, WIDTH)))
    labels = g.input("target", TensorType(I64, (ROWS,)))
    for index in range(blocks):
        y = g.matmul(x, net.weight(f"{index}.weight", WIDTH, WIDTH))
        if index % 4 == 0:
            frozen = g.param(f"{index}.frozen", np.eye(WIDTH, dtype=np.float32), trainable=False)
            y = g.mul(g.matmul(y, frozen), g.constant(np.full(WIDTH, 0.5, np.float32)))
        y = (
            net.batch_norm(y, f"{index}.norm")
            if index % 2
            else g.add(y, net.weight(f"{index}.b", WIDTH))
        )
        x = g.add(x, g.relu(y))
    logits = g.matmul(x, net.weight("head", WIDTH, 4))
    g.output("loss", g.cross_entropy(logits, labels))
    g.output("output", logits)
    return g.graph


def gated_net(blocks: int) -> Graph:
    """A residual net of gated products, as in a decoder's blocks."""
    net = NetBuilder("gated")
    g = net.g
    x: Value = g.input("x", TensorType(F32, (4 * ROWS, WIDTH)))
    labels = g.input("target", TensorType(I64, (4 * ROWS,)))
    for index in range(blocks):
        gate, up = (
            g.matmul(x, net.weight(f"{index}.{name}", WIDTH, 4 * WIDTH)) for name in ("gate", "up")
        )
        wide = g.mul(g.mul(gate, g.sigmoid(gate)), up)
        x = g.add(x, g.matmul(wide, net.weight(f"{index}.down", 4 * WIDTH, WIDTH)))
    g.output("loss", g.cross_entropy(g.matmul(x, net.weight("head", WIDTH, 4)), labels))
    return g.graph


def pass_seconds(nodes: int) -> tuple[int, float, dict[str, float]]:
    """Compile about this many nodes; return their number, and CPU seconds in total and per pass."""
    graph = deep_net(max(1, nodes // NODES_OF_A_BLOCK))
    seconds: dict[str, float] = {}
    count, last = 0, time.process_time()

    def observe(name: str, graph: Graph) -> None:
        nonlocal count, last
        now = time.process_time()
        seconds[name], last = now - last, now
        if name == "train.differentiate":
            count = len(graph.nodes)

    begin = last
    compile_program(
        graph, Training(optimizer=Sgd(momentum=0.9)), target=Target(FUSION), observe=observe
    )
    end = time.process_time()
    seconds["the last entry's memory plan"] = end - last
    return count, end - begin, seconds


def main(show: Callable[[str], None] = print) -> None:
    """Print the CPU seconds of each pass at several sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000, 20000])
    measured = [pass_seconds(nodes) for nodes in parser.parse_args().nodes]
    show(f"{'CPU seconds at nodes':34}" + "".join(f"{count:10}" for count, _, _ in measured))
    show(f"{'all':34}" + "".join(f"{total:10.2f}" for _, total, _ in measured))
    names = sorted(measured[-1][2], key=lambda name: -measured[-1][2][name])
    for name in names:
        show(f"{name:34}" + "".join(f"{parts[name]:10.2f}" for _, _, parts in measured))


if __name__ == "__main__":
    main()
