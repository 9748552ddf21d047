"""A small, partly trained int8 net, compiled for the backend qnn."""

from pathlib import Path

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import F32, I64, Graph, TensorType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import load_device
from pockengine.tests.compiler.small_nets import NetBuilder, batches

SAMPLES = batches(4)
PART = Scheme("part", (("c.0.weight", ParamChoice("share", share=0.25)), ("fc.*", FULL)))


def convolutional_net() -> Graph:
    """Three convolutions and a sum; the second is too large to be folded to floats."""
    net = NetBuilder("convolutions")
    x = net.g.input("x", TensorType(F32, (2, 6, 6, 4)))
    target = net.g.input("target", TensorType(I64, (2,)))
    stem = net.relu6(net.batch_norm(net.conv(x, "a.0", 16, 3), "a.1"))
    deep = net.relu6(net.batch_norm(net.conv(stem, "b.0", 16, 3), "b.1"))
    block = net.g.add(net.batch_norm(net.conv(deep, "c.0", 16, 3), "c.1"), stem)
    return net.head(block, 3, target)


def compiled(place: Path, scheme: Scheme | str = PART) -> tuple[Program, Artifact]:
    """Compile the net under a scheme, with momentum."""
    graph, _ = quantized(convolutional_net(), SAMPLES)
    backend = backend_for(load_device("host").on("qnn"))
    training = Training(scheme, Sgd(momentum=0.9), integers=Integers("f32"))
    program = compile_program(graph, training, target=backend.target(), check=True)
    return program, write_artifact(program, backend, place)
