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
    """Give parameters and states back as TensorFlow's variables hold them, by their names.

    `values` holds arrays by name as in the compiled program, and may name a part only;
    without it the graph's initial data are given. TensorFlow is not needed for it. Raises
    ImportModelError for a name or shape that the graph does not have.
    """
    return source_arrays(graph, values)


def load_weights(model_or_function: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Assign weights, as `to_weights` gives them, to the variables of their names.

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
