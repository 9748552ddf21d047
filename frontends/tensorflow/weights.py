"""Export tuned weights to TensorFlow: by name, losslessly."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.source_arrays import source_arrays
from pockengine.frontends.tensorflow.model import need_tensorflow


def to_weights(
    graph: Graph, values: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return parameters and states in the form of TensorFlow's variables, by their names.

    `values` maps some or all names to arrays of the compiled program; the default is the graph's
    initial data. This does not need TensorFlow. Raises ImportModelError for a name or shape that
    the graph does not have.
    """
    return source_arrays(graph, values)


def load_weights(model_or_function: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Assign the weights that `to_weights` returns to the variables of the same names.

    Variables that are not named keep their values. Raises ImportModelError, before anything is
    assigned, for a name that the model does not have or another shape.
    """
    need_tensorflow("load_weights")
    from pockengine.frontends.tensorflow.variables import named_variables

    variables = named_variables(getattr(model_or_function, "variables", ()))
    for name, array in weights.items():
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none"
            raise ImportModelError(f"the model has no variable {name!r}; it has {known}")
        if tuple(variables[name].shape) != array.shape:
            raise ImportModelError(
                f"{name}: shape {array.shape} is not the variable's {tuple(variables[name].shape)}"
            )
    for name, array in weights.items():
        variables[name].assign(array)
