"""Helpers of the JAX frontend's tests: compare our oracle with JAX and optax."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.optim import Optimizer, Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.jax import from_jax

jax.config.update("jax_disable_most_optimizations", True)  # compilation dominates test time

FORWARD_TOLERANCE = 1e-5
"""Largest error of a forward pass, relative to the largest element or to 1."""

LR = 0.05
Batch = tuple[np.ndarray, np.ndarray]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def batches_of(shape: Sequence[int], count: int = 10, words: int = 0) -> list[Batch]:
    """Return batches of random pictures (or words) and labels of 5 classes."""
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(words, size=shape).astype(np.int32)
        if words
        else rng.standard_normal(shape).astype(np.float32)
        for _ in range(count)
    ]
    return [(x, rng.integers(5, size=shape[0])) for x in inputs]


def check_function(
    function: Callable[..., Any], *inputs: np.ndarray, tolerance: float = FORWARD_TOLERANCE
) -> Graph:
    """Import a function without parameters and compare the oracle's results with JAX's."""
    graph = from_jax(lambda params, *arrays: function(*arrays), ({}, *inputs))
    verify(graph)
    feed = {
        value.name: np.asarray(x, value.dtype.numpy)
        for value, x in zip(graph.inputs, inputs, strict=True)
    }
    found = run(graph, feed)
    expected = jax.tree.leaves(jax.jit(function)(*inputs))
    for array, reference in zip(found.values(), expected, strict=True):
        assert array.shape == reference.shape
        scale = max(float(np.abs(reference).max()), 1.0)
        worst = np.abs(array.astype(np.float64) - np.asarray(reference, np.float64)).max()
        assert worst <= tolerance * scale
    return graph


def cross_entropy(logits: jax.Array, labels: np.ndarray) -> jax.Array:
    """Return the cross entropy, averaged over the batch."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def reference_losses(
    loss: Callable[..., Any],
    variables: Any,
    batches: Sequence[Batch],
    transformation: optax.GradientTransformation,
) -> tuple[list[float], Any]:
    """Train with JAX and optax; return the losses and the final variables.

    `loss(variables, x, y)` returns the loss and the other collections, updated.
    """

    @jax.jit
    def step(variables: Any, state: Any, x: Any, y: Any) -> Any:
        def of_params(params: Any) -> Any:
            return loss({**variables, "params": params}, x, y)

        params = variables["params"]
        (value, others), grads = jax.value_and_grad(of_params, has_aux=True)(params)
        updates, state = transformation.update(grads, state, params)
        return {**others, "params": optax.apply_updates(params, updates)}, state, value

    state, losses = transformation.init(variables["params"]), []
    for x, y in batches:
        variables, state, value = step(variables, state, x, y)
        losses.append(float(value))
    return losses, variables


def oracle_losses(
    graph: Graph, feeds: Sequence[Mapping[str, np.ndarray]], optimizer: Optimizer | None = None
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train with the whole compiler and our oracle; return the losses and the final params."""
    training = Training(optimizer=optimizer or Sgd())
    step = compile_program(graph, training, check=True).entries["train"].graph
    params = {name: param.data.copy() for name, param in step.params.items()}
    losses = []
    for number, feed in enumerate(feeds, 1):
        controls = {"lr": np.float32(LR), "step": np.int32(number), "seed": np.int32(number)}
        needed = {value.name for value in step.inputs}
        inputs = {**feed, **{key: data for key, data in controls.items() if key in needed}}
        losses.append(float(run(step, inputs, params)["loss"]))
    return losses, params


def check_tree(found: Any, expected: Any, rtol: float = 1e-3) -> None:
    """Compare every leaf, relative to its largest element or to 0.01, whichever is larger."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for path, leaf in jax.tree_util.tree_leaves_with_path(expected):
        own = dict(jax.tree_util.tree_leaves_with_path(found))[path]
        scale = max(float(np.abs(leaf).max()), 0.01)
        assert float(np.abs(own - leaf).max()) <= rtol * scale, path
