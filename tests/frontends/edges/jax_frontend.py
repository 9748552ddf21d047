"""Many small functions of JAX as one: their results and gradients, by JAX and as a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from pockengine.compiler.ir import Graph
from pockengine.frontends.jax import from_jax
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    Results,
    add_gradients,
    is_trained,
    param_name,
    weights_of,
)

jax.config.update("jax_disable_most_optimizations", True)  # compiling is most of the time

Arrays = dict[str, np.ndarray]


def arrays_of(cases: Sequence[ArrayCase]) -> tuple[Arrays, Arrays]:
    """Return the trained arrays and the inputs of all cases by name."""
    trained: Arrays = {}
    inputs: Arrays = {}
    for number, case in enumerate(cases):
        for index, array in enumerate(case.arrays):
            held = trained if is_trained(array) else inputs
            held[param_name(number, index)] = array
    return trained, inputs


def joined(cases: Sequence[ArrayCase]) -> Any:
    """Return a function of all cases' arrays: the weighted sum of floats, and all results."""

    def function(params: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        given = {**params, **inputs}
        total, results = jnp.float32(0), []
        for number, case in enumerate(cases):
            names = [param_name(number, index) for index in range(len(case.arrays))]
            for result in jax.tree.leaves(case.function(*(given[name] for name in names))):
                array = jnp.asarray(result)
                results.append(array)
                if array.dtype == jnp.float32:
                    total = total + (array * weights_of(array.shape)).sum()
        return total, results

    return function


def expected(cases: Sequence[ArrayCase]) -> Results:
    """Run the cases in JAX."""
    run = jax.jit(jax.value_and_grad(joined(cases), has_aux=True))
    (_, results), gradients = run(*arrays_of(cases))
    return _named(cases, [np.asarray(y) for y in results], gradients)


def imported(cases: Sequence[ArrayCase]) -> Graph:
    """Import the cases and add the gradients."""
    graph = from_jax(joined(cases), arrays_of(cases))
    add_gradients(graph)
    return graph


def feed(cases: Sequence[ArrayCase]) -> Arrays:
    """Return the graph's inputs."""
    return {f"inputs.{name}": array for name, array in arrays_of(cases)[1].items()}


def results_of(cases: Sequence[ArrayCase], found: Mapping[str, np.ndarray]) -> Results:
    """Name what a graph returned."""
    results = [y for name, y in found.items() if name != "loss" and not name.startswith("gradient")]
    gradients = {
        name: found.get(f"gradient.{name}", np.zeros_like(array))
        for name, array in arrays_of(cases)[0].items()
    }
    return _named(cases, results, gradients)


def _named(
    cases: Sequence[ArrayCase], results: Sequence[np.ndarray], gradients: Mapping[str, Any]
) -> Results:
    arrays, named = iter(results), {}
    trained, inputs = arrays_of(cases)
    for number, case in enumerate(cases):
        given = [param_name(number, index) for index in range(len(case.arrays))]
        shapes = [{**trained, **inputs}[name] for name in given]
        for index in range(len(jax.tree.leaves(jax.eval_shape(case.function, *shapes)))):
            named[f"{case.name}: result {index}"] = next(arrays)
        for index, name in enumerate(given):
            if name in trained:
                named[f"{case.name}: gradient {index}"] = np.asarray(gradients[name])
    return named
