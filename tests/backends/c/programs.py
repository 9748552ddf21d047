"""Small programs for tests of the runtime, and ways to build them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import generate
from pockengine.backends.native.runtime_files import copy_runtime, runtime_sources
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS, device_of
from pockengine.tests.backends.c.objects import build_executable


def point_graph(size: int = 300) -> Graph:
    """The mean squared distance of the param `point` to the input `x`; output `distance`."""
    graph = Graph("point")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (size,)))
    point = g.param("point", np.linspace(-1, 1, size, dtype=np.float32))
    away = g.sub(point, x)
    g.output("distance", g.abs(away))
    g.output("loss", g.reduce_mean(g.square(away), axes=(0,), keepdims=False))
    return graph


def convolutional_graph(batch: int = 4) -> Graph:
    """Batch norm, a residual, depthwise and pointwise convolutions, pooling."""
    rng = np.random.default_rng(5)
    graph = Graph("small_cnn")
    g = Builder(graph)

    def param(name: str, *shape: int) -> object:
        return g.param(name, (rng.standard_normal(shape) * 0.3).astype(np.float32))

    x = g.input("x", TensorType(F32, (batch, 12, 12, 3)))
    labels = g.input("labels", TensorType(I64, (batch,)))
    y = g.conv2d(x, param("first.weight", 3, 3, 3, 8), padding=(1, 1, 1, 1))
    ones, zeros = np.ones(8, np.float32), np.zeros(8, np.float32)
    gamma, beta = g.param("norm.weight", ones), g.param("norm.bias", zeros)
    norm = g.emit("batch_norm", y, gamma, beta, eps=1e-5)
    running = g.param("norm.running_mean", zeros, trainable=False)
    g.emit("ema_update", running, norm.results[1], momentum=0.1)
    y = g.hardtanh(norm.results[0], min=0.0, max=6.0)
    z = g.conv2d(y, param("depthwise.weight", 3, 3, 1, 8), padding=(1, 1, 1, 1), groups=8)
    y = g.max_pool2d(g.add(y, g.hard_swish(z)), kernel=(2, 2), stride=(2, 2))
    y = g.relu(g.conv2d(y, param("pointwise.weight", 1, 1, 8, 16)))
    y = g.reduce_mean(y, axes=(1, 2), keepdims=False)
    logits = g.add(g.matmul(y, param("head.weight", 16, 5)), param("head.bias", 5))
    g.output("logits", logits)
    g.output("loss", g.cross_entropy(logits, labels))
    return graph


PICTURES = (2, 10, 11, 16)
"""Input shape of `residual_graph`."""


def residual_graph() -> Graph:
    """A block with two 3x3 convolutions and a shortcut, then a 1x1 convolution of stride 2."""
    rng = np.random.default_rng(3)
    graph = Graph("block")
    g = Builder(graph)

    def param(name: str, *shape: int) -> object:
        return g.param(name, (rng.standard_normal(shape) * 0.1).astype(np.float32))

    same = {"padding": (1, 1, 1, 1)}
    x = g.input("x", TensorType(F32, PICTURES))
    y = g.relu(g.add(g.conv2d(x, param("first.weight", 3, 3, 16, 32), **same), param("bias", 32)))
    y = g.relu(g.add(g.conv2d(y, param("second.weight", 3, 3, 32, 32), **same), y))
    y = g.conv2d(y, param("down.weight", 1, 1, 32, 24), stride=(2, 2))
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1, 2, 3), keepdims=False))
    return graph


MOMENTUM = Training(optimizer=Sgd(momentum=0.9, weight_decay=1e-3))


def compile_for(
    graph: Graph, device: Device, training: Training = MOMENTUM
) -> tuple[Program, CBackend]:
    """Compile for a device, with every pass checked."""
    backend = CBackend(device)
    return compile_program(graph, training, target=backend.target(), check=True), backend


def build_sanitized(
    graph: Graph,
    folder: Path,
    flags: Sequence[str] = SANITIZED,
    training: Training = MOMENTUM,
) -> tuple[Path, Program]:
    """Build the runner of a program with gcc, its sanitizers, and all warnings as errors."""
    program, backend = compile_for(graph, device_of("avx2", 3), training)
    return build_program(program, backend, folder, flags), program


def build_program(
    program: Program, backend: CBackend, folder: Path, flags: Sequence[str] = SANITIZED
) -> Path:
    """Build the runner of a program compiled for AVX2 in the same way."""
    for name, text in generate(program, backend).items():
        (folder / name).write_text(text)
    copy_runtime(folder / "runtime")
    sources = [*sorted(folder.glob("*.c")), *runtime_sources(folder / "runtime")]
    runner = folder / "runner"
    compiler = ("gcc", *COMMON, *flags, *WARNINGS, "-march=x86-64-v3")
    build_executable(sources, compiler, folder / "runtime", runner)
    return runner
