"""Compare our oracle's training step of a small JAX function with JAX's loss and gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.frontends.jax import from_jax
from pockengine.frontends.jax.trace import named_leaves

Function = Callable[..., Any]


def weighed(function: Function) -> Function:
    """Return a loss: the weighted sum of all results of a function of (params, inputs)."""

    def loss(params: Any, *inputs: Any) -> Any:
        total = jnp.float32(0)
        for number, result in enumerate(jax.tree.leaves(function(params, *inputs))):
            array = jnp.asarray(result)
            floats = jnp.where(array, 1.0, 0.0) if array.dtype == bool else array.astype("float32")
            weights = np.cos(np.arange(array.size) + number).astype(np.float32)
            total = total + (floats * weights.reshape(array.shape)).sum()
        return total

    return loss


def by_tangents(loss: Function) -> Function:
    """Differentiate in forward mode, element by element, where JAX has no reverse mode."""

    def value_and_gradients(params: Any, *inputs: Any) -> Any:
        leaves, tree = jax.tree.flatten(params)

        def slope(place: int, element: int) -> Any:
            tangents = [np.zeros_like(leaf) for leaf in leaves]
            tangents[place].flat[element] = 1
            whole = jax.tree.unflatten(tree, tangents)
            return jax.jvp(lambda p: loss(p, *inputs), (params,), (whole,))[1]

        gradients = [
            np.reshape([slope(place, element) for element in range(leaf.size)], leaf.shape)
            for place, leaf in enumerate(leaves)
        ]
        return loss(params, *inputs), jax.tree.unflatten(tree, gradients)

    return value_and_gradients


def check_step(
    function: Function, params: Any, *inputs: Any, forwards: bool = False, large: bool = False
) -> None:
    """Compare the loss, and each parameter's change in an SGD step of rate 1, with JAX's.

    JAX runs op by op, so that functions share compiled ops; a `large` function is jitted whole.
    """
    loss = weighed(function)
    graph = from_jax(loss, (params, *inputs))
    differentiate = by_tangents(loss) if forwards else jax.value_and_grad(loss, allow_int=True)
    expected, gradients = (jax.jit(differentiate) if large else differentiate)(params, *inputs)
    step = compile_program(graph, Training(optimizer=Sgd()), check=True).entries["train"].graph
    weights = {name: param.data.copy() for name, param in step.params.items()}
    feed = {"lr": np.float32(1), "step": np.int32(1), "seed": np.int32(1)}
    arrays = [np.asarray(x) for x in jax.tree.leaves(list(inputs))]
    named = [value.name for value in graph.inputs if value.name not in feed]
    feed.update(zip(named, arrays, strict=True))
    found = run(
        step, {v.name: np.asarray(feed[v.name], v.dtype.numpy) for v in step.inputs}, weights
    )

    np.testing.assert_allclose(found["loss"], expected, rtol=2e-5, atol=2e-5)
    for name, gradient in named_leaves(gradients).items():
        if np.asarray(gradient).dtype == np.float32:
            before = step.params[name].data if name in step.params else np.float32(0)
            taken = before - weights.get(name, np.float32(0))
            np.testing.assert_allclose(
                np.broadcast_to(taken, gradient.shape), gradient, rtol=2e-4, atol=2e-5
            )
