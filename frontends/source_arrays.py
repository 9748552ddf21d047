"""Convert a program's arrays back to the framework's order of dimensions."""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError


def source_arrays(
    graph: Graph, values: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return copies of parameters and states, by name, in the layout of the imported model.

    `values` maps some or all names to arrays of the compiled program; the default is the graph's
    initial data. Raises ImportModelError for a name or shape that the graph does not have.
    """
    if values is None:
        values = {name: param.data for name, param in graph.params.items()}
    arrays = {}
    for name, array in values.items():
        param = graph.params.get(name)
        if param is None:
            raise ImportModelError(f"graph {graph.name} has no parameter {name!r}")
        if tuple(array.shape) != param.value.shape:
            raise ImportModelError(
                f"{name}: shape {tuple(array.shape)} is not the graph's {param.value.shape}"
            )
        if param.permutation is not None:
            array = array.transpose(np.argsort(param.permutation))
        arrays[name] = np.array(array, order="C")
    return arrays
