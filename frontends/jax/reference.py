"""JAX's own loss and gradients on the example inputs."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pockengine.frontends.jax.keys import is_key_type
from pockengine.frontends.jax.primitives.emulated_types import HALVES, input_type
from pockengine.frontends.jax.sources import source_of
from pockengine.frontends.jax.trace import TracedFunction, trace
from pockengine.frontends.probabilities import CROSS_ENTROPIES, LEAST, takes_logarithm
from pockengine.frontends.reference import Nudge, Reference, draw_target


def reference(model: Any, example_inputs: Any, loss: str | None, nudge: Nudge) -> Reference | None:
    """Run the function and its gradient once; None if example inputs have no data."""
    source = source_of(model, example_inputs, 0)
    traced = trace(source, 0)
    leaves = traced.leaves
    if any(
        isinstance(leaf.value, jax.ShapeDtypeStruct) and not is_key_type(leaf.value)
        for leaf in leaves
    ):
        return None
    arrays = [_array(leaf, nudge) for leaf in leaves]
    structure = jax.tree_util.tree_structure([*source.state.values(), *source.inputs.values()])
    floats = [
        index for index, leaf in enumerate(leaves) if leaf.role == "param" and _is_float(leaf)
    ]

    def results(trained: list[Any]) -> list[Any]:
        filled = list(arrays)
        for index, array in zip(floats, trained, strict=True):
            filled[index] = array
        returned = source.function(*jax.tree_util.tree_unflatten(structure, filled))
        return [_widened(leaf) for leaf in jax.tree_util.tree_leaves(returned)]

    feed = {
        leaf.name: _as_input(np.asarray(array))
        for leaf, array in zip(leaves, arrays, strict=True)
        if leaf.role == "input" and not is_key_type(leaf.value)
    }
    trained = [arrays[index] for index in floats]
    if loss is not None:
        feed["target"] = _target(traced, loss)
    judge = _judge(traced, loss, feed.get("target"), results(trained) if loss else [])

    value, grads = _differentiated(lambda arrays: judge(results(arrays)), trained)
    if grads is None:
        return Reference(feed, float(value), None)
    named = {leaves[i].name: np.asarray(grad) for i, grad in zip(floats, grads, strict=True)}
    return Reference(feed, float(value), named)


def _differentiated(loss: Callable[[list[Any]], Any], trained: list[Any]) -> tuple[Any, Any]:
    """Return a loss and its gradients; None for these if JAX has none, as of `while_loop`."""
    try:
        value, grads = jax.value_and_grad(loss)(trained)
    except (NotImplementedError, ValueError):
        return loss(trained), None
    return value, grads


def _widened(result: Any) -> Any:
    """Return a result of 16 bits as float32, in which our losses compute."""
    is_half = getattr(result, "dtype", None) in HALVES
    return result.astype(np.float32) if is_half else result


def _as_input(array: np.ndarray) -> np.ndarray:
    """Return an input as the graph reads it."""
    type_ = input_type(array.dtype)
    return array if type_ is None else array.astype(type_.numpy)


def _array(leaf: Any, nudge: Nudge) -> Any:
    if is_key_type(leaf.value) and isinstance(leaf.value, jax.ShapeDtypeStruct):
        return jax.random.key(0)
    if _is_float(leaf) and leaf.role != "state":
        return jax.numpy.asarray(nudge(np.asarray(leaf.value, np.float32)))
    return leaf.value


def _is_float(leaf: Any) -> bool:
    """Return whether JAX takes an array as float32, as it takes NumPy's of float64."""
    return not is_key_type(leaf.value) and bool(
        jax.dtypes.canonicalize_dtype(leaf.value.dtype) == np.float32
    )


def _outputs(traced: TracedFunction) -> dict[str, int]:
    """Return the places of the results that are no new states, by name."""
    names = enumerate(traced.outputs)
    return {name: index for index, name in names if index not in traced.writes}


def _target(traced: TracedFunction, loss: str) -> np.ndarray:
    first = next(iter(_outputs(traced).values()))
    shape = traced.jaxpr.out_avals[first].shape
    if loss in CROSS_ENTROPIES:  # the classes are last in JAX, and second where we take them
        return draw_target(loss, (shape[0], shape[-1], *shape[1:-1]))
    return draw_target(loss, shape)


def _judge(
    traced: TracedFunction, loss: str | None, target: Any, found: list[Any]
) -> Callable[[list[Any]], Any]:
    """Return the loss as a function of results; the results found decide whether it takes
    logarithms.
    """
    outputs = _outputs(traced)
    first = next(iter(outputs.values()))
    if loss is None:
        return lambda results: results[outputs.get("loss", first)]
    if loss == "mse":
        return lambda results: jax.numpy.mean((results[first] - target) ** 2)
    takes = takes_logarithm(loss, np.asarray(found[first]), -1)

    def entropy(results: list[Any]) -> Any:
        scores = results[first]
        if takes:
            scores = jax.numpy.log(jax.numpy.maximum(scores, LEAST))
        logs = jax.nn.log_softmax(scores, axis=-1)
        return -jax.numpy.take_along_axis(logs, target[..., None], axis=-1).mean()

    return entropy
