"""JAX functions and Flax modules: the public face of the JAX frontend.

`from_jax` converts a function of pytrees or a Flax module to a forward `Graph`, or to a whole step;
`to_pytree` exports tuned weights. jax is imported when they are called.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.losses import LOSSES


def from_jax(
    model: Any, example_inputs: Any, *, loss: str | None = None, carried: int = 0
) -> Graph:
    """Import a jittable function, or a Flax module, as a graph.

    `example_inputs` are the positional (sequence) or named (mapping) arguments; arrays or
    `jax.ShapeDtypeStruct`s give shapes and types, plain Python values are fixed. The first
    argument determines where the parameters are:

    - a function: `(params, x, ...)`, params any pytree;
    - a `flax.linen` module: `(variables, x, ...)`, as `module.apply` has it;
    - a `flax.nnx` module, or a callable pytree such as one of Equinox, holds its own: `(x, ...)`.

    Params are named by their paths in the pytree, such as `params.Dense_0.kernel`. All float32
    arrays can train; where the pytree has a collection "params" (Flax), only that one, and the
    others (`batch_stats`) are states: a result at the same path is a state's new value. Inputs
    carry the names of the function's parameters, and a path where they are pytrees.

    `loss` "cross_entropy" (logits with classes last, labels int64) or "mse" adds an input `target`
    for the first result and an output `loss`. Otherwise a scalar that comes first is the loss.

    `carried` imports a whole step that computes its own gradients and updates: its first `carried`
    arguments are states, and its first results their new values. Compile it by `compile_entries`.

    Raises ImportModelError naming everything that cannot be imported, with its place.
    """
    if loss is not None and loss not in LOSSES:
        raise ImportModelError(f"unknown loss {loss!r}; known are {', '.join(LOSSES)}")
    _need_jax("from_jax")
    from pockengine.frontends.jax.build import build
    from pockengine.frontends.jax.sources import source_of
    from pockengine.frontends.jax.trace import trace

    return build(trace(source_of(model, example_inputs, carried), carried), loss, not carried)


def to_pytree(graph: Graph, values: Mapping[str, np.ndarray], tree: Any, argument: str = "") -> Any:
    """Return a copy of the pytree with tuned weights in place of the leaves of their names.

    `tree` is the argument of `from_jax`: its first one, or the nnx module, of which a copy is
    returned. `values` maps some or all names to arrays of the compiled program; names that the tree
    does not have (states of optimizers) are left out. `argument` is the name of the tree's
    argument, where a step carries several. Raises ImportModelError for a shape that is not the
    graph's.
    """
    _need_jax("to_pytree")
    from pockengine.frontends.jax.build import put_back

    return put_back(graph, values, tree, argument)


def carried_of(step: Any, example_inputs: Any, carried: int) -> dict[str, Any]:
    """Return the arguments of a step that it carries, by name."""
    _need_jax("carried_of")
    from pockengine.frontends.jax.sources import arguments_of

    return dict(list(arguments_of(step, example_inputs).items())[:carried])


def parameters_of(model: Any, example_inputs: Any) -> Any:
    """Return the object with the parameters: a module, else the first argument."""
    _need_jax("parameters_of")
    from pockengine.frontends.jax.sources import arguments_of, holds_parameters

    return (
        model
        if holds_parameters(model)
        else next(iter(arguments_of(model, example_inputs).values()))
    )


def resize_examples(
    model: Any, example_inputs: Any, axes: Mapping[str, int], size: int
) -> dict[str, Any]:
    """Name the example inputs as `from_jax` does, with `size` along the dimensions in `axes`.

    Elements are repeated or dropped.
    """
    _need_jax("resize_examples")
    from pockengine.frontends.jax.sources import arguments_of
    from pockengine.frontends.jax.trace import resized

    return resized(arguments_of(model, example_inputs), axes, size)


def is_jax(model: Any) -> bool:
    """Return whether `from_jax` supports this, without importing JAX."""
    if sys.modules.get("jax") is None:
        return False
    from pockengine.frontends.jax.sources import is_linen, is_nnx

    return is_linen(model) or is_nnx(model) or callable(model)


def _need_jax(caller: str) -> None:
    try:
        import jax  # noqa: F401
    except ImportError as error:
        raise ImportModelError(
            f"{caller} needs JAX, which is not installed; install it with `pip install jax` (0.6 "
            "or newer), and `pip install flax` for Flax's modules"
        ) from error
