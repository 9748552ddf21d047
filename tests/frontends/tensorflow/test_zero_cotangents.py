"""Roots and reciprocals at infinite slopes: a zero cotangent stays zero, as in TensorFlow."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.tensorflow import from_tensorflow
from pockengine.tests.frontends.edges.compiled import by_c

ROWS = np.array([[0, 0, 0], [1, -2, 0], [4, 0, 9], [-0.0, np.inf, 0]], np.float32)
WEIGHTS = np.array([[0, 1, 0], [0, 1, -1], [2, 0, 0], [0, 0, 3]], np.float32)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": lambda x: tf.sqrt(x * x) * WEIGHTS,
    "rsqrt": lambda x: tf.math.rsqrt(x * x) * WEIGHTS,
    "rsqrt of a mean": lambda x: tf.math.rsqrt(tf.reduce_mean(x * x, 1)) * WEIGHTS[:, 0],
    "reciprocal": lambda x: tf.math.reciprocal(x) * WEIGHTS,
    "inverse": lambda x: tf.raw_ops.Inv(x=x) * WEIGHTS,
    "reciprocal that is not chosen": lambda x: tf.where(x == 0, 1.0, tf.math.reciprocal(x)),
    "norm": lambda x: tf.norm(x, axis=1) * WEIGHTS[:, 0],
    "std": lambda x: tf.math.reduce_std(x[:3], axis=1) * WEIGHTS[:3, 0],
    "normalize": lambda x: ops.normalize(x) * WEIGHTS,
    "l2_normalize": lambda x: tf.math.l2_normalize(x, 1) * WEIGHTS,
    "cosine_similarity": lambda x: keras.losses.cosine_similarity(WEIGHTS, x),
    "cosine_similarity of both": lambda x: keras.losses.cosine_similarity(x, x[::-1]),
}


class Trained(tf.Module):
    """A function of one variable; the loss is the sum of its results."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.x = tf.Variable(ROWS, name="x")
        self.function = function

    def __call__(self) -> Any:
        y = self.function(self.x)
        return {"y": y, "loss": tf.reduce_sum(y)}


def imported(function: Callable[[Any], Any]) -> Graph:
    graph = from_tensorflow(Trained(function), ())
    g = Builder(graph)
    (x,) = (param.value for param in graph.params.values())
    g.output("gradient", backward(g, graph.outputs["loss"], {x: None})[x])
    return graph


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_and_gradient_equal_tensorflow(name: str) -> None:
    module, graph = Trained(FUNCTIONS[name]), imported(FUNCTIONS[name])
    with tf.GradientTape() as tape:
        results = module()
    gradient = tape.gradient(results["loss"], module.x)
    for found in (run(graph, {}), by_c(graph, {})):
        np.testing.assert_allclose(found["y"], results["y"], rtol=1e-5)
        np.testing.assert_allclose(found["gradient"], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        layers.BatchNormalization,
        layers.GroupNormalization,
        layers.LayerNormalization,
        layers.RMSNormalization,
    ],
)
def test_norms_need_no_custom_gradient(layer: type[layers.Layer]) -> None:
    model = keras.Sequential([keras.Input((4, 32)), layers.Dense(32), layer(), layers.Dense(3)])
    graph = from_tensorflow(model, (np.ones((2, 4, 32), np.float32),), loss="mse")
    assert "custom_gradient" not in {node.op for node in graph.nodes}
