"""Many small JAX functions joined into one: results and gradients by JAX and by our graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from pockengine.compiler.ir import Graph
from pockengine.frontends.jax import from_jax
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    named_arrays,
    param_name,
    result_name,
    weights_of,
)

jax.config.update("jax_disable_most_optimizations", True)  # compilation dominates the time

Arrays = dict[str, np.ndarray]


def arrays_of(cases: Sequence[ArrayCase]) -> tuple[Arrays, Arrays]:
    """Return the trained arrays and the inputs of all cases, by name."""
    return named_arrays(cases, trained=True), named_arrays(cases, trained=False)


def joined(cases: Sequence[ArrayCase]) -> Any:
    """Return a function of all cases' arrays.

    It returns all results, and the weighted sum of the float results as the loss.
    """

    def function(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {**params, **inputs}
        found, total = {}, jnp.float32(0)
        for number, case in enumerate(cases):
            operands = [arrays[param_name(number, i)] for i in range(len(case.arrays))]
            for index, result in enumerate(jax.tree.leaves(case.function(*operands))):
                array = found[result_name(number, index)] = jnp.asarray(result)
                if array.dtype == jnp.float32:
                    total = total + (array * weights_of(array.shape)).sum()
        return {**found, "loss": total}

    return function


def expected(cases: Sequence[ArrayCase]) -> Arrays:
    """Run the cases in JAX."""

    def with_loss(*arrays: Any) -> tuple[Any, Any]:
        found = joined(cases)(*arrays)
        return found["loss"], found

    run = jax.jit(jax.value_and_grad(with_loss, has_aux=True))
    (_, results), gradients = run(*arrays_of(cases))
    named = {f"gradient.{name}": gradient for name, gradient in gradients.items()}
    return {name: np.asarray(array) for name, array in {**results, **named}.items()}


def imported(cases: Sequence[ArrayCase]) -> Graph:
    """Import the cases."""
    return from_jax(joined(cases), arrays_of(cases))


def feed(cases: Sequence[ArrayCase]) -> Arrays:
    """Return the graph's inputs."""
    return {f"inputs.{name}": array for name, array in arrays_of(cases)[1].items()}
