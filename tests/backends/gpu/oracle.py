"""Compare the emulation's results with the oracle's, in every execution order."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import write_artifact
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import F32, I64, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import from_bf16, to_bf16
from pockengine.tests.backends.gpu.orders import ORDERS, ordered

Arrays = Mapping[str, np.ndarray]


def drawn(graph: Graph) -> dict[str, np.ndarray]:
    """Return a random array for each of a graph's inputs."""
    rng = np.random.default_rng(7)
    return {
        value.name: rng.standard_normal(value.shape).astype(np.float32)
        if value.dtype is F32
        else rng.integers(0, 300 if value.dtype is I64 else 2, value.shape, value.dtype.numpy)
        for value in graph.inputs
    }


def rounded(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return the nearest bf16 numbers, as f32."""
    return {name: from_bf16(to_bf16(x)) for name, x in arrays.items()}


def compare(
    backend: GpuBackend,
    graphs: Mapping[str, Graph],
    inputs: Mapping[str, Arrays],
    folder: Path,
    *,
    taken: Mapping[str, Arrays] | None = None,
) -> None:
    """Assert that graphs give the oracle's results for `taken`, by default the inputs."""
    program = compile_entries("cases", dict(graphs), target=backend.target())
    artifact = write_artifact(program, backend, folder / "made")
    with open_session(artifact) as session:
        for key, graph in graphs.items():
            found = []
            for order in ORDERS:
                with ordered(artifact, order):
                    found.append(session.run(key, inputs[key]))
            for name, array in run(graph, (taken or inputs)[key], {}).items():
                text = str(graph.nodes[0])
                np.testing.assert_allclose(
                    found[0][name], array, rtol=1e-4, atol=1e-4, err_msg=text
                )
                for other in found[1:]:
                    np.testing.assert_array_equal(found[0][name], other[name], err_msg=text)
