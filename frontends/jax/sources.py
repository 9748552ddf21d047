"""Traceable models: plain functions, Flax's linen modules, and its nnx modules."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from pockengine.errors import ImportModelError
from pockengine.frontends.faults import theirs
from pockengine.frontends.jax.trace import (
    PARAMS,
    PytreeFunction,
    as_arrays,
    bound,
    is_static,
    path_name,
    with_statics,
)

ARRAYS = (jax.Array, np.ndarray)


def is_linen(model: Any) -> bool:
    """Return whether this is a module of flax.linen."""
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(model, linen.Module)


def is_nnx(model: Any) -> bool:
    """Return whether this is a module of flax.nnx."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(model, nnx.Module)


def is_tree(model: Any) -> bool:
    """Return whether this is a callable pytree, such as a module of Equinox, that holds arrays."""
    leaves = jax.tree_util.tree_leaves(model)
    own = not any(leaf is model for leaf in leaves)
    return callable(model) and own and any(isinstance(leaf, ARRAYS) for leaf in leaves)


def holds_parameters(model: Any) -> bool:
    """Return whether a model is a pytree that holds its own parameters."""
    return is_nnx(model) or is_tree(model)


def arguments_of(model: Any, example_inputs: Any) -> dict[str, Any]:
    """Name the example inputs as the model's parameters are; a linen module's variables first."""
    return bound(model, example_inputs, ("variables",) if is_linen(model) else ())


def source_of(model: Any, example_inputs: Any, carried: int) -> PytreeFunction:
    """Return how a model is called; ImportModelError for anything but a function or module."""
    if carried and (is_linen(model) or holds_parameters(model)):
        raise ImportModelError("carried= is for a function that does a whole step, not for modules")
    if is_linen(model):
        return _linen(model, example_inputs)
    if is_nnx(model):
        return _nnx(model, example_inputs)
    if is_tree(model):
        return _tree(model, example_inputs)
    if not callable(model):
        raise ImportModelError(
            f"from_jax takes a function or a Flax module, not a {type(model).__name__}"
        )
    return _function(model, example_inputs, max(carried, 1), trains=not carried)


def _function(
    model: Callable[..., Any], examples: Any, states: int, trains: bool
) -> PytreeFunction:
    arguments = arguments_of(model, examples)
    name = getattr(model, "__name__", type(model).__name__)
    if len(arguments) < states:
        raise ImportModelError(
            f"{name} needs example inputs: its parameters first, then the data, for instance "
            "(params, x)"
        )
    arrays = {key: value for key, value in arguments.items() if not is_static(value)}
    of_tree = _arrays_of if trains else as_arrays
    trees = {key: of_tree(tree) for key, tree in list(arrays.items())[:states]}
    inputs = {key: value for key, value in arrays.items() if key not in trees}
    _check_open(model, name)
    key, first = next(iter(trees.items()))
    call = with_statics(model, arguments, isinstance(examples, Mapping))
    if trains and not all(map(_is_array, jax.tree_util.tree_leaves(first))):
        parted = _Parted(first)
        trees[key], call = parted.arrays, parted.joining(call)
    return PytreeFunction(
        name,
        call,
        trees,
        inputs=inputs,
        trainable=_in_collection(first) if trains else lambda path: False,
    )


def _arrays_of(tree: Any) -> Any:
    """Convert numbers to arrays, except in modules, where they are settings, such as a dropout's
    rate.
    """
    return jax.tree.map(
        lambda node: node if _is_module(node) else as_arrays(node), tree, is_leaf=_is_module
    )


def _is_module(node: Any) -> bool:
    """Return whether this is a module that is a pytree: Equinox's, or one that can be called."""
    equinox = sys.modules.get("equinox")
    return callable(node) or (equinox is not None and isinstance(node, equinox.Module))


def _in_collection(tree: Any) -> Callable[[str], bool]:
    """Only the collection "params" trains, where a pytree has collections."""
    if isinstance(tree, Mapping) and PARAMS in tree:
        return lambda path: path.startswith(f"{PARAMS}.")
    return lambda path: True


def _linen(module: Any, examples: Any) -> PytreeFunction:
    arguments = arguments_of(module, examples)
    variables = arguments.pop("variables", None)
    if not isinstance(variables, Mapping) or PARAMS not in variables:
        raise ImportModelError(
            f"{type(module).__name__} needs its variables first: example_inputs = (variables, x), "
            "with variables = module.init(key, x)"
        )
    mutable = [name for name in variables if name != PARAMS]
    seed = jax.eval_shape(lambda: jax.random.key(0))
    inputs = {key: value for key, value in arguments.items() if not is_static(value)}
    by_name = isinstance(examples, Mapping)

    def call(variables: Any, key: Any, *arrays: Any) -> Any:
        def apply(*args: Any, **kwargs: Any) -> Any:
            settings = {"mutable": mutable, "rngs": {"dropout": key}}
            return theirs(module.apply, variables, *args, **kwargs, **settings)

        return with_statics(apply, arguments, by_name)(*arrays)

    trees = {"variables": dict(variables)}
    streams = {"dropout_key": seed, **inputs}
    name = type(module).__name__
    return PytreeFunction(
        name, call, trees, inputs=streams, trainable=_in_collection(variables), returns_state=True
    )


def _nnx(module: Any, examples: Any) -> PytreeFunction:
    from flax import nnx

    arguments = arguments_of(module, examples)
    inputs = {key: value for key, value in arguments.items() if not is_static(value)}
    definition, state = nnx.split(module)
    kinds = {  # an array that is in no Variable has no kind
        ".".join(map(str, path)): getattr(leaf, "type", object)
        for path, leaf in nnx.to_flat_state(state)
    }

    def call(values: Any, *arrays: Any) -> Any:
        fresh = jax.tree.map(lambda leaf: leaf, state)
        nnx.replace_by_pure_dict(fresh, values)
        copy = nnx.merge(definition, fresh)
        result = with_statics(copy, arguments, isinstance(examples, Mapping))(*arrays)
        return result, nnx.to_pure_dict(nnx.state(copy))

    def trainable(path: str) -> bool:
        return issubclass(kinds[path], nnx.Param)

    trees = {"state": nnx.to_pure_dict(state)}
    return PytreeFunction(
        type(module).__name__, call, trees, inputs=inputs, trainable=trainable, returns_state=True
    )


def _tree(module: Any, examples: Any) -> PytreeFunction:
    """Train the arrays of floats in a callable pytree; its other leaves stay as they are."""
    name = type(module).__name__
    if isinstance(module, jax.tree_util.Partial):
        raise ImportModelError(
            "a Partial hides which of its arrays are parameters; give a function of (params, x)"
        )
    arguments = arguments_of(module, examples)
    inputs = {key: value for key, value in arguments.items() if not is_static(value)}
    parted = _Parted(module)

    def call(copy: Any, *arrays: Any) -> Any:
        return with_statics(copy, arguments, isinstance(examples, Mapping))(*arrays)

    trees = {"module": parted.arrays}
    return PytreeFunction(
        name, parted.joining(call), trees, inputs=inputs, trainable=lambda path: True
    )


class _Parted:
    """A pytree whose leaves are not all arrays, such as a module of Equinox, and its arrays."""

    def __init__(self, tree: Any) -> None:
        """Name the arrays by their paths."""
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        self._leaves = [(path_name(path), leaf) for path, leaf in leaves]
        self.arrays = {name: leaf for name, leaf in self._leaves if _is_array(leaf)}

    def joining(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of the arrays first that a function of the whole tree is."""

        def joined(values: Any, *others: Any) -> Any:
            filled = [values.get(name, leaf) for name, leaf in self._leaves]
            return call(jax.tree_util.tree_unflatten(self._structure, filled), *others)

        return joined


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def _check_open(model: Any, name: str) -> None:
    """Refuse a transformed module, whose arrays would be constants."""
    inner = getattr(model, "__wrapped__", None)
    if inner is not None and (holds_parameters(inner) or is_linen(inner)):
        kind = type(inner).__name__
        raise ImportModelError(
            f"{name} hides a {kind}, whose arrays would not train; give a function of the module "
            "and the data, for instance (lambda module, x: jax.vmap(module)(x))"
        )
