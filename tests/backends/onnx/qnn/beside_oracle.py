"""Compare ResNet-20's sparse int8 step on the HTP with the oracle: placement of nodes, and losses.

    python -m pockengine.tests.backends.onnx.qnn.beside_oracle --steps 10

It needs onnxruntime-qnn; the simulator takes seconds per step. The losses of ONNX Runtime's own
kernels for the models of the backend onnx are printed, too.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.onnx.runtime import Placed
from pockengine.backends.onnx.session import OnnxSession
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.devices import load_device
from pockengine.tests.backends.inputs import draw
from pockengine.tests.backends.onnx.nets import pictures

NET, SAMPLES, RATE = "resnet20-32", 4, 1e-3
HEAD = 0.02
"""Scale of the head's random weights, so that the initial loss is near that of chance."""


def net() -> tuple[Graph, Graph]:
    """Return the net, and the same with ranges from some random batches."""
    graph = pictures(NET, 1)
    weight = graph.params["fc.weight"]
    weight.data = weight.data * np.float32(HEAD)
    return graph, quantized(graph, [draw(graph, number) for number in range(SAMPLES)])[0]


def compiled(graph: Graph, backend: str, place: Path) -> tuple[Program, Artifact]:
    """Compile the sparse step with momentum."""
    chosen = backend_for(load_device("host").on(backend))
    training = Training("sparse", Sgd(momentum=0.9), integers=Integers("f32"))
    program = compile_program(graph, training, target=chosen.target())
    return program, write_artifact(program, chosen, place)


def show(placed: Sequence[Placed]) -> None:
    """Print the number of nodes of each operator by processor, and the nodes on the CPU."""
    for (op, provider), count in sorted(Counter((p.op, p.provider) for p in placed).items()):
        click.echo(f"{op:20}{provider:24}{count:4}")


@click.command()
@click.option("--steps", type=click.IntRange(1), default=10)
def main(steps: int) -> None:
    """Train for some steps, each on a different batch."""
    graph, integers = net()
    with TemporaryDirectory() as folder:
        program, artifact = compiled(integers, "qnn", Path(folder) / "qnn")
        _, other = compiled(integers, "onnx", Path(folder) / "onnx")
        step = program.entries["train"].graph
        params = {name: param.data.copy() for name, param in step.params.items()}
        with open_session(artifact) as session, open_session(other) as plain:
            assert isinstance(session, OnnxSession)
            show(session.placed("train"))
            for number in range(steps):
                batch = draw(graph, number)
                control = {"lr": np.asarray(RATE, np.float32), "step": np.int32(number + 1)}
                expected = float(run(step, {**batch, **control}, params)["loss"])
                losses = [float(s.train_step(batch, RATE)["loss"]) for s in (session, plain)]
                apart = (f"{loss:8.4f} ({abs(loss - expected) / expected:.1e})" for loss in losses)
                click.echo(f"oracle {expected:8.4f}  HTP {next(apart)}  CPU {next(apart)}")
            trained = session.params()
    for name, data in params.items():
        if data.dtype == np.int8 and name in program.scheme:
            most = np.abs(trained[name].astype(int) - data).max()
            moved = np.abs(data.astype(int) - step.params[name].data).max()
            click.echo(f"{name}: {most} apart at most, moved by {moved}")


if __name__ == "__main__":
    main()
