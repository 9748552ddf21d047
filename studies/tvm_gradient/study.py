"""Time a step with TVM's own gradients and with ours: bazel run //studies/tvm_gradient

Nets are small, with ops that TVM can differentiate. All losses must agree with PyTorch's before a
step is timed; the methods take turns.
"""

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import click
import numpy as np
import torch
from rich.box import SIMPLE
from rich.table import Table
from torch import nn

import pockengine
from pockengine import PockEngineError
from pockengine.errors import CompileError, RuntimeFailure
from pockengine.studies.tvm_gradient.own import OwnTraining
from pockengine.terminal import PlainConsole

CLASSES, RATE, CHECKED, TOLERANCE = 10, 0.01, 5, 1e-4
Step = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Net:
    """A module and the shape of a batch."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


def perceptron(between: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Three layers, with an activation after the first two."""
    layers = nn.Linear(784, 512), between(), nn.Linear(512, 256), between()
    return nn.Sequential(*layers, nn.Linear(256, CLASSES))


def convolutions(norm: bool = False) -> nn.Module:
    """Two convolutions and a classifier; with `norm` a batch norm between them."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    layers += [nn.BatchNorm2d(16)] if norm else []
    layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, CLASSES))


NETS = (
    Net("perceptron of 784, 512, 256", perceptron, (32, 784)),
    Net("two convolutions of 32 x 32", convolutions, (8, 3, 32, 32)),
    Net("the same with a batch norm", lambda: convolutions(norm=True), (8, 3, 32, 32)),
    Net("the perceptron with GELU", lambda: perceptron(nn.GELU), (32, 784)),
)
ENGINES = (
    "TVM's gradient, plain loops",
    "TVM's gradient, our schedules",
    "ours in TVM",
    "ours in C",
)


@dataclass(frozen=True)
class Measured:
    """Milliseconds of a method's step: the median, the minimum, the maximum; or the error."""

    engine: str
    times: tuple[float, float, float] | None
    refused: str = ""


def measure(net: Net, rounds: int) -> list[Measured]:
    """Time a net's methods in turns; RuntimeFailure if a loss differs from PyTorch's."""
    torch.manual_seed(0)
    module = net.build()
    rng = np.random.default_rng(0)
    x = rng.standard_normal(net.shape, np.float32)
    labels = rng.integers(0, CLASSES, net.shape[0])
    expected = _by_torch(copy.deepcopy(module), x, labels)
    steps: dict[str, Step] = {}
    refused: dict[str, str] = {}
    with ExitStack() as stack:
        for engine in ENGINES:
            try:
                steps[engine] = _step_of(engine, copy.deepcopy(module), x, stack)
            except CompileError as error:
                refused[engine] = str(error)
        for engine, step in steps.items():
            found = [step(x, labels) for _ in range(CHECKED)]
            if not np.allclose(found, expected, rtol=TOLERANCE):
                raise RuntimeFailure(f"{net.name}, {engine}: losses {found}, PyTorch's {expected}")
        times: dict[str, list[float]] = {engine: [] for engine in steps}
        for _ in range(rounds):
            for engine, step in steps.items():
                start = time.perf_counter()
                step(x, labels)
                times[engine].append(1e3 * (time.perf_counter() - start))
    return [
        Measured(engine, (median(times[engine]), min(times[engine]), max(times[engine])))
        if engine in times
        else Measured(engine, None, refused[engine])
        for engine in ENGINES
    ]


def _step_of(engine: str, module: nn.Module, x: np.ndarray, stack: ExitStack) -> Step:
    if engine in ENGINES[:2]:
        return OwnTraining(module, x, CLASSES, RATE, scheduled=engine == ENGINES[1]).step
    backend = "tvm" if engine == ENGINES[2] else "c"
    compiled = pockengine.compile(
        module, (torch.from_numpy(x),), loss="cross_entropy", backend=backend
    )
    session = stack.enter_context(compiled.session(threads=1))

    def step(x: np.ndarray, labels: np.ndarray) -> float:
        return float(session.train_step({"input": x, "target": labels}, RATE)["loss"])

    return step


def _by_torch(module: nn.Module, x: np.ndarray, labels: np.ndarray) -> Sequence[float]:
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    losses = []
    for _ in range(CHECKED):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@click.command()
@click.option("--rounds", default=30, show_default=True, type=click.IntRange(1))
def main(rounds: int) -> None:
    """Print milliseconds of a step for each method, net by net."""
    console = PlainConsole(120)
    try:
        for net in NETS:
            table = Table(title=f"{net.name}, batch {net.shape[0]}", box=SIMPLE)
            for heading in ("engine", "step, ms", "least to most"):
                table.add_column(heading, justify="left" if heading == "engine" else "right")
            for each in measure(net, rounds):
                if each.times is None:
                    table.add_row(each.engine, "-", each.refused)
                else:
                    middle, least, most = each.times
                    table.add_row(each.engine, f"{middle:.2f}", f"{least:.2f} to {most:.2f}")
            console.print(table)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
