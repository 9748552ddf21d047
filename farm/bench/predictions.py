"""A prediction in int8 and in f32: instructions on an emulated board, and a correctness check.

It is of the job's first batch, by the weights from which training starts, on one thread.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine import __version__
from pockengine.backends.artifact import Artifact
from pockengine.compiled import Compiled
from pockengine.compiler.ir.evaluate import run as evaluate
from pockengine.devices import load_device
from pockengine.devices.isa import COUNTERS
from pockengine.errors import FarmError
from pockengine.farm.bench.peers import OURS, Measured
from pockengine.farm.references.instructions import GUEST, count_twice
from pockengine.farm.references.job import JobData
from pockengine.farm.references.timing import Timing

TOLERANCE = 1e-4
"""Of the largest output; integers are exact, floats are rounded."""

Arrays = dict[str, np.ndarray]


def oracle_prediction(compiled: Compiled, data: JobData) -> Arrays:
    """Return the oracle's predictions for the first batch."""
    graph = compiled.program.entries["predict"].graph
    state = {name: param.data for name, param in graph.params.items()}
    return evaluate(graph, {graph.inputs[0].name: data.images[0]}, state)


def count_prediction(artifact: Artifact, data: JobData, expected: Arrays, folder: Path) -> Measured:
    """Count a prediction twice; FarmError unless its outputs are the expected ones."""
    rows, out = folder / "pictures.safetensors", folder / "predicted.safetensors"
    (name,) = artifact.entries["predict"].inputs
    save_file({name: np.ascontiguousarray(data.images[0])}, rows)
    files = ["--weights", str(artifact.weights), "--data", str(rows), "--output", str(out)]
    device = load_device(artifact.device)
    arch, emulator = device.cpu.arch, device.emulator
    counted = count_twice(
        [str(artifact.executable), "predict", *files, "--threads", "1"],
        marks=1,
        arch=arch,
        cpu=emulator.cpu if emulator and arch == GUEST else None,
    )
    error = _error(load_file(out), expected)
    if not error <= TOLERANCE:
        raise FarmError(f"it predicts something else than the oracle, off by {error:.1e}")
    timing = Timing.of([float(count) for count in counted.regions])
    return Measured(
        OURS, __version__, f"guest_{COUNTERS[arch].unit}", timing=timing, max_rel_error=error
    )


def _error(found: Arrays, expected: Arrays) -> float:
    """Return the largest difference, relative to the largest number of its output."""
    pairs = [(found[name], array) for name, array in expected.items() if name in found]
    if len(pairs) < len(found) or not pairs:
        return float("inf")
    return max(float(np.abs(one - two).max() / np.abs(two).max()) for one, two in pairs)
