"""Compare whole nets in another runtime with C: losses, weights and times, in alternating steps.

    python -m pockengine.tests.backends.onnx.beside_c mobilenet_v2 minilm --backend onnx --steps 10

`--backend tvm` needs an environment with TVM. Each net and scheme has a line, for one thread: the
largest relative difference of losses, the largest difference of weights and states (relative to the
tensor's largest number if that is above 1), and the median milliseconds of a step. The exit status
is 1 if a difference is above 1e-4.
"""

import statistics
import sys
import time
from collections.abc import Mapping

import click
import numpy as np

import pockengine
from pockengine.backends.session import Session
from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Sgd
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.lora import lora
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.onnx.nets import NETS

RATE, LIMIT, WARM = 1e-3, 1e-4, 2


def compare(
    graph: Graph, scheme: Scheme | str, steps: int, backend: str
) -> tuple[float, float, Mapping[str, float]]:
    """Return the differences of losses and of weights, and each backend's milliseconds per step."""
    compiled = {
        name: pockengine.compile(
            graph, None, backend=name, scheme=scheme, optimizer=Sgd(momentum=0.9)
        )
        for name in ("c", backend)
    }
    sessions = {name: each.session() for name, each in compiled.items()}
    times: dict[str, list[float]] = {name: [] for name in sessions}
    apart = 0.0
    for number in range(steps):
        batch = draw(graph, number)
        losses = [_timed(session, batch, times[key]) for key, session in sessions.items()]
        apart = max(apart, abs(losses[0] - losses[1]) / abs(losses[0]))
    expected, found = (session.params() for session in sessions.values())
    worst = max(_apart(found[name], expected[name]) for name in expected)
    for session in sessions.values():
        session.close()
    return apart, worst, {key: statistics.median(each[WARM:]) for key, each in times.items()}


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest number if that is above 1."""
    return float(np.abs(found - expected).max()) / max(1.0, float(np.abs(expected).max()))


def _timed(session: Session, batch: Mapping[str, np.ndarray], times: list[float]) -> float:
    start = time.perf_counter()
    loss = session.train_step(batch, RATE)["loss"]
    times.append(1e3 * (time.perf_counter() - start))
    return float(loss)


@click.command()
@click.argument("nets", nargs=-1, type=click.Choice(list(NETS)))
@click.option("--backend", type=click.Choice(["gpu", "onnx", "tflite", "tvm"]), default="onnx")
@click.option("--steps", type=click.IntRange(WARM + 1), default=10)
def main(nets: tuple[str, ...], backend: str, steps: int) -> None:
    """Compare the named nets, or all, under every scheme."""
    sound = True
    for name in nets or NETS:
        build, adapted = NETS[name]
        for scheme in ("full", "bias-only", "sparse", lora(4, 8, [adapted])):
            losses, weights, times = compare(build(), scheme, steps, backend)
            sound = sound and losses <= LIMIT and weights <= LIMIT
            title = scheme.name if isinstance(scheme, Scheme) else scheme
            click.echo(
                f"{name:14}{title:11} losses {losses:.1e}  weights {weights:.1e}  "
                f"C {times['c']:8.1f} ms  {backend} {times[backend]:8.1f} ms"
            )
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
