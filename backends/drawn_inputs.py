"""Random inputs for a step that is only measured or compared."""

import numpy as np

from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.index_ranges import index_ranges
from pockengine.compiler.ir import F32, Graph


def draw_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Return random inputs for a graph, except its controls: floats, bytes, and indices in
    range.
    """
    highest: dict[str, int] = {}
    for indices in index_ranges(graph):
        highest[indices.input] = min(indices.high, highest.get(indices.input, indices.high))
    rng = np.random.default_rng(0)
    feed: dict[str, np.ndarray] = {}
    for value in graph.inputs:
        if value.name in CONTROLS:
            continue
        if value.dtype is F32:
            feed[value.name] = rng.standard_normal(value.shape).astype(np.float32)
        else:
            most = 0 if value.dtype.computed else np.iinfo(value.dtype.numpy.name).max
            drawn = rng.integers(highest.get(value.name, most) + 1, size=value.shape)
            feed[value.name] = drawn.astype(value.dtype.numpy)
    return feed
