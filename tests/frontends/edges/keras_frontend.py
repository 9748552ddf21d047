"""Many small TensorFlow functions joined into one: results and gradients by both sides."""

import os
from collections.abc import Sequence
from typing import Any

# TensorFlow's own kernels are the reference: oneDNN's treatment of NaN depends on the CPU.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

from pockengine.compiler.ir import Graph
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    named_arrays,
    param_name,
    result_name,
    weights_of,
)

tf.autograph.set_verbosity(0)


class Joined(tf.Module):
    """All cases' functions; returns their results, and the weighted sum of the float results."""

    def __init__(self, cases: Sequence[ArrayCase]) -> None:
        super().__init__()
        self.cases = list(cases)
        self.params = {
            name: tf.Variable(array, name=name)
            for name, array in named_arrays(cases, trained=True).items()
        }

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        found, total = {}, tf.constant(0.0)
        for number, case in enumerate(self.cases):
            names = [param_name(number, index) for index in range(len(case.arrays))]
            operands = [
                self.params[name].read_value() if name in self.params else inputs[name]
                for name in names
            ]
            with tf.name_scope(f"case{number}"):
                results = tf.nest.flatten(case.function(*operands))
                for index, result in enumerate(results):
                    found[result_name(number, index)] = tf.identity(result)
                    if result.dtype == tf.float32:
                        total += tf.reduce_sum(result * weights_of(result.shape))
        return {**found, "loss": total}


def feed(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Return the graph's inputs."""
    return named_arrays(cases, trained=False)


def expected(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Run the cases as one tf.function, as Keras trains; eager Keras uses other losses."""
    module, inputs = Joined(cases), feed(cases)
    with tf.GradientTape() as tape:
        found = tf.function(module)(**{name: tf.constant(x) for name, x in inputs.items()})
    gradients = tape.gradient(found["loss"], module.params)
    arrays = {name: y.numpy() for name, y in found.items()}
    dense = {
        f"gradient.{name}": np.asarray(tf.convert_to_tensor(gradient))
        for name, gradient in gradients.items()
        if gradient is not None
    }
    return {**arrays, **dense}


def imported(cases: Sequence[ArrayCase]) -> Graph:
    """Import the cases."""
    return from_tensorflow(Joined(cases), feed(cases))
