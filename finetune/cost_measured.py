"""The measured cost of a scheme's step: time on this machine, instructions under an emulator.

Inputs are zeros. Time uses all cores, instructions one thread. Guest instruction counts are
deterministic; a time is the minimum of several, since other work can only add to it.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.controls import RATE, SEED, STEP
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.devices import Device
from pockengine.devices.isa import COUNTERS
from pockengine.errors import FinetuneError

STEPS = 7


def measure_milliseconds(graph: Graph, training: Training, device: Device) -> float:
    """Return the minimum time of a training step on this machine, which `device` must be."""
    least = float("inf")
    with (
        _built(graph, training, device) as artifact,
        open_session(artifact, threads=device.cpu.cores) as session,
    ):
        inputs = _zeros(artifact)
        for _ in range(STEPS):
            start = time.perf_counter()
            session.train_step(inputs, lr=0.0)
            least = min(least, time.perf_counter() - start)
    return 1e3 * least


def count_instructions(graph: Graph, training: Training, device: Device) -> int:
    """Return the guest instructions of a training step; FinetuneError if the device has no
    counter.
    """
    from pockengine.farm.references.instructions import count  # imported late: needs an emulator

    if device.cpu.arch not in COUNTERS or not device.runs:
        raise FinetuneError(
            f"instructions are counted for {', '.join(COUNTERS)}, and {device.name} is "
            f"{device.cpu.arch}{'' if device.runs else ' that cannot be emulated'}"
        )
    with _built(graph, training, device) as artifact:
        data = artifact.folder / "zeros.safetensors"
        save_file({n: np.atleast_1d(array) for n, array in _zeros(artifact).items()}, data)
        command = [str(artifact.executable), "train", "--weights", str(artifact.weights)]
        command += ["--data", str(data), "--steps", "2", "--lr", "0.0", "--threads", "1"]
        counted = count(command, marks=2, arch=device.cpu.arch)
    return counted.regions[1]  # the first step also faults in its memory


@contextmanager
def _built(graph: Graph, training: Training, device: Device) -> Iterator[Artifact]:
    """Build an artifact with these training options in a temporary folder."""
    backend = backend_for(device)
    program = compile_program(graph, training, target=backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-cost-") as folder:
        yield write_artifact(program, backend, Path(folder) / "artifact")


def _zeros(artifact: Artifact) -> dict[str, np.ndarray]:
    """Return zeros for each data input of the training step."""
    return {
        name: np.zeros(type_.shape, type_.dtype.numpy)
        for name, type_ in artifact.entries["train"].inputs.items()
        if name not in (RATE, STEP, SEED)
    }


@dataclass(frozen=True)
class LinearFit:
    """Measured figures as a linear function of modelled ones."""

    slope: float
    offset: float

    def modelled(self, measured: float) -> float:
        """Return the modelled figure with this measured one."""
        return (measured - self.offset) / self.slope


def fit_line(low: tuple[float, float], high: tuple[float, float]) -> LinearFit:
    """Fit a line through two schemes, each (modelled, measured); FinetuneError if it falls."""
    if high[0] <= low[0] or high[1] <= low[1]:
        raise FinetuneError(
            f"training everything was measured as {high[1]:,.4g} and the head alone as "
            f"{low[1]:,.4g}: this machine is too busy to measure; try again"
        )
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return LinearFit(slope, low[1] - slope * low[0])
