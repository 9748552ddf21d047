"""Many small functions of TensorFlow as one: their results and gradients, eager and as a graph."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

# The reference is TensorFlow's own kernels: those of oneDNN treat NaN by what the CPU can do.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

from pockengine.compiler.ir import Graph
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    Results,
    add_gradients,
    is_trained,
    param_name,
    weights_of,
)

tf.autograph.set_verbosity(0)


class Joined(tf.Module):
    """All cases' functions: returns their results, and the weighted sum of the floats."""

    def __init__(self, cases: Sequence[ArrayCase]) -> None:
        super().__init__()
        self.cases = list(cases)
        self.held = {
            name: tf.Variable(array, name=name)
            for name, array in named_arrays(cases).items()
            if is_trained(array)
        }

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        found, total = {}, tf.constant(0.0)
        for number, case in enumerate(self.cases):
            names = [param_name(number, index) for index in range(len(case.arrays))]
            operands = [
                self.held[name].read_value() if name in self.held else inputs[name]
                for name in names
            ]
            with tf.name_scope(f"case{number}"):
                results = tf.nest.flatten(case.function(*operands))
                for index, result in enumerate(results):
                    found[result_name(number, index)] = tf.identity(result)
                    if result.dtype == tf.float32:
                        total += tf.reduce_sum(result * weights_of(result.shape))
        return {**found, "loss": total}


def result_name(number: int, index: int) -> str:
    """Name a result of a case so that names sort in order."""
    return f"r{number:04}_{index}"


def named_arrays(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Return the arrays of all cases by name."""
    return {
        param_name(number, index): array
        for number, case in enumerate(cases)
        for index, array in enumerate(case.arrays)
    }


def feed(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Return the graph's inputs."""
    return {name: x for name, x in named_arrays(cases).items() if not is_trained(x)}


def expected(cases: Sequence[ArrayCase]) -> Results:
    """Run the cases as one tf.function, as Keras trains; eagerly it takes other losses."""
    module, inputs = Joined(cases), feed(cases)
    with tf.GradientTape() as tape:
        found = tf.function(module)(**{name: tf.constant(x) for name, x in inputs.items()})
    gradients = tape.gradient(found["loss"], module.held)
    arrays = {name: y.numpy() for name, y in found.items()}
    dense = {
        f"gradient.{name}": np.asarray(tf.convert_to_tensor(gradient))
        for name, gradient in gradients.items()
        if gradient is not None
    }
    return results_of(cases, {**arrays, **dense})


def imported(cases: Sequence[ArrayCase]) -> Graph:
    """Import the cases and add the gradients."""
    graph = from_tensorflow(Joined(cases), feed(cases))
    add_gradients(graph)
    return graph


def results_of(cases: Sequence[ArrayCase], found: Mapping[str, np.ndarray]) -> Results:
    """Name what a graph returned."""
    named = {}
    for number, case in enumerate(cases):
        results = [y for name, y in found.items() if name.startswith(result_name(number, 0)[:-1])]
        named.update({f"{case.name}: result {i}": y for i, y in enumerate(results)})
        trained = [i for i, array in enumerate(case.arrays) if is_trained(array)]
        for place, index in enumerate(trained):
            name = f"gradient.{param_name(number, index)}"
            zeros = np.zeros_like(case.arrays[index])
            named[f"{case.name}: gradient {place}"] = found.get(name, zeros)
    return named
