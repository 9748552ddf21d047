"""Trace a function or a Flax module to a jaxpr with named inputs."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pockengine.boundary import frames
from pockengine.errors import ImportModelError
from pockengine.frontends.faults import own_fault, theirs
from pockengine.frontends.jax.places import raised_at

PARAMS = "params"
"""The collection of trainable arrays in pytrees with several collections, such as Flax's."""


@dataclass(frozen=True)
class Leaf:
    """One input array: a parameter, a persistent state, or an input."""

    name: str
    role: str
    value: Any


@dataclass(frozen=True)
class PytreeFunction:
    """A function of pytrees: `state` (named, each a pytree that stays) and `inputs`.

    It returns its results, and where `returns_state`, the new states after them, as a tuple of two.
    """

    name: str
    function: Callable[..., Any]
    state: Mapping[str, Any]
    inputs: Mapping[str, Any]
    trainable: Callable[[str], bool]
    returns_state: bool = False


@dataclass(frozen=True)
class TracedFunction:
    """A jaxpr with a leaf for each of its inputs and a name for each of its results.

    `writes` maps results to the leaves whose new values they are.
    """

    name: str
    jaxpr: Any
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    writes: Mapping[int, str]


def path_name(path: Any) -> str:
    """Name a leaf of a pytree by its path: `params.Dense_0.kernel`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def as_arrays(tree: Any) -> Any:
    """Convert plain numbers in a pytree, such as a step's counter, to arrays."""
    return jax.tree_util.tree_map(
        lambda leaf: jax.numpy.asarray(leaf) if isinstance(leaf, (bool, int, float)) else leaf, tree
    )


def named_leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return a pytree's leaves by name."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = {joined(prefix, path_name(path)): leaf for path, leaf in leaves}
    if len(named) != len(leaves):
        raise ImportModelError("two arrays of a pytree have the same path; rename one")
    return named


def joined(*parts: str) -> str:
    """Join the non-empty parts of a name."""
    return ".".join(part for part in parts if part)


def trace(source: PytreeFunction, carried: int) -> TracedFunction:
    """Trace the function on its examples; tracing errors are explained in the user's terms."""
    trees = [*source.state.values(), *source.inputs.values()]
    with_shape = jax.make_jaxpr(source.function, return_shape=True)
    try:
        jaxpr, shape = theirs(with_shape, *trees)
    except Exception as error:  # tracing raises whatever the user's own code raises
        fault = own_fault(error, f"JAX traced {source.name}", "jax", "flax")
        raise fault or ImportModelError(_explained(source, error)) from error
    leaves = _leaves(source)
    outputs, writes = _results(source, shape, leaves, carried)
    return TracedFunction(source.name, jaxpr, leaves, outputs=outputs, writes=writes)


def _leaves(source: PytreeFunction) -> tuple[Leaf, ...]:
    leaves = []
    several = len(source.state) > 1
    for name, tree in source.state.items():
        for path, value in named_leaves(tree, name if several else "").items():
            _check_array(path or name, value)
            leaves.append(Leaf(path or name, "param" if source.trainable(path) else "state", value))
    for name, tree in source.inputs.items():
        for path, value in named_leaves(tree, name).items():
            _check_array(path, value)
            leaves.append(Leaf(path, "input", value))
    return tuple(leaves)


def _check_array(name: str, value: Any) -> None:
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise ImportModelError(f"{name} is a {type(value).__name__}, not an array")


def _results(
    source: PytreeFunction, shape: Any, leaves: Sequence[Leaf], carried: int
) -> tuple[tuple[str, ...], dict[int, str]]:
    """Name the flat results, and find those that are new values of leaves."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(shape)[0]]
    types = jax.tree_util.tree_leaves(shape)
    if carried:
        return _carried(source, shape, paths, leaves=leaves, carried=carried)
    states = {leaf.name: leaf.value for leaf in leaves if leaf.role == "state"}
    names, writes = [], {}
    for index, (path, type_) in enumerate(zip(paths, types, strict=True)):
        module_state = source.returns_state and path[0].idx == 1
        suffix = path[1:] if source.returns_state else path
        candidates = (path_name(path[1:]), path_name(path))  # beside other results, or alone
        named = [name for name in candidates if name in states]
        if module_state:
            writes[index] = path_name(suffix)
        elif named and not source.returns_state and states[named[0]].shape == type_.shape:
            writes[index] = named[0]
        names.append(_output_name(path_name(suffix)))
    return tuple(names), writes


def _carried(
    source: PytreeFunction, shape: Any, paths: Sequence[Any], leaves: Sequence[Leaf], carried: int
) -> tuple[tuple[str, ...], dict[int, str]]:
    """Pair the first results of a step with its first arguments."""
    trees = list(source.state.values())
    parts = shape if isinstance(shape, (tuple, list)) else (shape,)
    for index, tree in enumerate(trees):
        if len(parts) <= index or _form(parts[index]) != _form(tree):
            raise ImportModelError(
                f"{source.name} is to carry {carried} argument(s), so its result {index} must have "
                f"the structure, shapes and types of its argument {list(source.state)[index]!r}"
            )
    states = [leaf.name for leaf in leaves if leaf.role != "input"]
    writes = dict(enumerate(states))
    single = shape is parts[0]
    names = []
    for path in paths:
        suffix = path if single else path[1:] if len(parts) == carried + 1 else path
        names.append(_output_name(path_name(suffix)))
    return tuple(names), writes


def _form(tree: Any) -> Any:
    """Return the properties in which a state and its new value must agree."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return structure, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]


def _output_name(path: str) -> str:
    if not path or path.split(".")[0].isdigit():
        return joined("output", path)
    return path


def bound(function: Callable[..., Any], inputs: Any, first: tuple[str, ...] = ()) -> dict[str, Any]:
    """Name example inputs as the function's parameters are, after those in `first`."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = list(first)
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [f"input{index}" for index in range(len(names), len(inputs))]
    return dict(zip(names, inputs, strict=False))


def resized(arguments: Mapping[str, Any], axes: Mapping[str, int], size: int) -> dict[str, Any]:
    """Resize arrays along the dimensions in `axes`: rows are repeated or dropped."""

    def changed(name: str, leaf: Any) -> Any:
        if name not in axes:
            return leaf
        array = np.asarray(leaf)
        return array.take(np.arange(size) % array.shape[axes[name]], axis=axes[name])

    return {
        name: value
        if is_static(value)
        else jax.tree_util.tree_map_with_path(
            lambda path, leaf, name=name: changed(joined(name, path_name(path)), leaf), value
        )
        for name, value in arguments.items()
    }


def is_static(value: Any) -> bool:
    """Return whether an argument is a plain Python value, which is fixed at compile time."""
    return value is None or isinstance(value, (bool, int, float, str))


def with_statics(
    function: Callable[..., Any], arguments: Mapping[str, Any], by_name: bool
) -> Callable[..., Any]:
    """Return a function of only the arrays, in order; plain values are bound."""
    names = [name for name, value in arguments.items() if not is_static(value)]

    def call(*arrays: Any) -> Any:
        filled = {**arguments, **dict(zip(names, arrays, strict=True))}
        return theirs(function, **filled) if by_name else theirs(function, *filled.values())

    return call


TENSORFLOW = "-packages/tensorflow/"
"""Part of the path of TensorFlow's code."""


def _explained(source: PytreeFunction, error: Exception) -> str:
    """Explain an error of tracing in the user's terms."""
    name, line = source.name, raised_at(error.__traceback__)
    place = f" (at {line})" if line else ""
    text = str(error)
    if any(TENSORFLOW in code.co_filename for code, _ in frames(error.__traceback__)):
        return (
            f"{name} calls TensorFlow, but is taken for a function of JAX's, as every plain "
            "function is once jax is imported, as by TensorFlow itself; give tf.function(...) of it"
        )
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError) or "size argument" in text:
        return (
            f"{name} makes an array whose shape depends on values: a compiled function has fixed "
            f"shapes. Use jnp.where(mask, x, 0) instead of x[mask]{place}"
        )
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return (
            f"{name} decides by the values in an array: a compiled function does the same steps "
            f"for any data. Use jnp.where, or move the decision out of it{place}"
        )
    if isinstance(
        error,
        (
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError,
        ),
    ):
        return (
            f"{name} needs the values in an array while it is traced, for a shape, for NumPy or "
            f"for a Python number: pass such values as plain numbers, and use jax.numpy{place}"
        )
    first = next((part.strip() for part in text.splitlines() if part.strip()), repr(error))
    return (
        f"{name} does not run on example inputs of shapes {_shapes(source)}: "
        f"{type(error).__name__}: {first}; check that calling it with them works{place}"
    )


def _shapes(source: PytreeFunction) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the example inputs by name."""
    return {
        key: tuple(leaf.shape)
        for name, tree in source.inputs.items()
        for key, leaf in named_leaves(tree, name).items()
        if hasattr(leaf, "shape")
    }
