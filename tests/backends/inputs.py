"""Random inputs of whole trainings, for any graph."""

import numpy as np

from pockengine.compiler.ir import F32, Graph


def draw(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Random inputs of a graph: normal numbers, and indices that are valid for every axis."""
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.integers(0, 2, value.shape, dtype=value.dtype.numpy)
        if value.dtype is not F32
        else rng.standard_normal(value.shape).astype(np.float32)
        for value in graph.inputs
    }
