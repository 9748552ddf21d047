"""From a traced function to a graph, and from tuned arrays back to the user's pytree."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir import F32, DType, Graph, TensorType
from pockengine.compiler.passes.cleanup.dead_code import DeadCode
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.idioms import recognize
from pockengine.frontends.jax.graph import JaxprWalker, Known
from pockengine.frontends.jax.keys import counts, draws, is_key_type
from pockengine.frontends.jax.places import SourceLocation
from pockengine.frontends.jax.primitives.emulated_types import HALVES, input_type
from pockengine.frontends.jax.primitives.random import Key
from pockengine.frontends.jax.primitives.registry import known_dtype
from pockengine.frontends.jax.sources import is_nnx
from pockengine.frontends.jax.trace import Leaf, TracedFunction, joined, path_name
from pockengine.frontends.layout import Tensor, framework_order, permute, plain
from pockengine.frontends.losses import add_loss, is_loss
from pockengine.frontends.probabilities import CROSS_ENTROPIES


def build(traced: TracedFunction, loss: str | None, forward: bool) -> Graph:
    """Build the graph; ImportModelError lists everything without an equivalent."""
    walker = JaxprWalker(traced.name, forward=forward)
    jaxpr = traced.jaxpr.jaxpr
    used = {variable for equation in jaxpr.eqns for variable in _read(equation.invars)}
    used.update(_read(jaxpr.outvars))
    known = []
    for leaf, variable in zip(traced.leaves, jaxpr.invars, strict=True):
        is_used = variable in used
        key = _key(jaxpr, variable, leaf, is_used)
        known.append(_declare(walker, leaf, is_used, forward) if key is None else key)
    results = walker.run(traced.jaxpr, known, SourceLocation())
    outputs = _outputs(walker, traced, results)
    walker.problems.check(traced.name)
    if loss is not None:
        if not outputs:
            raise ImportModelError(f"{traced.name} returns nothing that a loss could judge")
        add_loss(walker.g, _classes_second(next(iter(outputs.values())), loss), loss)
    walker.name_outputs(outputs)
    by_name = {leaf.name: x for leaf, x in zip(traced.leaves, known, strict=True)}
    _write(walker, traced, by_name, results)
    if forward:
        recognize(walker.g.graph)
    DeadCode().run(walker.g.graph)
    return walker.g.graph


def _read(atoms: list[Any]) -> list[Any]:
    """Leave numbers out, which are no variables."""
    return [atom for atom in atoms if not hasattr(atom, "val")]


def _key(jaxpr: Any, variable: Any, leaf: Leaf, used: bool) -> Known:
    """Return the representation of a random key, or of a number used only for keys."""
    if is_key_type(leaf.value):
        return Key((leaf.name,))
    if leaf.value.dtype != np.uint32:
        return None
    if leaf.value.shape[-1:] == (2,) and (not used or draws(jaxpr, variable)):
        return Key((leaf.name,))
    if leaf.role == "state" and counts(jaxpr, variable):
        return np.asarray(leaf.value)
    return None


def _declare(walker: JaxprWalker, leaf: Leaf, used: bool, forward: bool) -> Known:
    """Declare one array; unread arrays are dropped, unless they are inputs."""
    if not used and leaf.role != "input":
        return None
    with walker.noting(leaf.name, f"the {leaf.role}s"):
        dtype = known_dtype(np.dtype(jax.dtypes.canonicalize_dtype(leaf.value.dtype)))
        if 0 in leaf.value.shape:
            return np.zeros(leaf.value.shape, dtype.numpy)
        if forward and leaf.name in CONTROLS:
            raise Unsupported("the training step has an input of this name; rename the argument")
        if leaf.role == "input":
            return _input(walker, leaf, dtype)
        if isinstance(leaf.value, jax.ShapeDtypeStruct):
            raise Unsupported("a parameter without data; give the arrays themselves")
        if leaf.value.dtype in HALVES:
            raise Unsupported(
                f"weights of {leaf.value.dtype} lose small updates; keep them as float32, and cast "
                "them where the model computes"
            )
        if dtype is not F32 and leaf.role == "param":
            return np.asarray(leaf.value)  # an integer or a flag among the weights: a constant
        data = np.array(leaf.value, dtype.numpy, order="C")
        trains = leaf.role == "param"
        return plain(walker.g.param(leaf.name, data, trainable=trains))
    return None


def _input(walker: JaxprWalker, leaf: Leaf, dtype: DType) -> Tensor:
    """Declare an input: bytes directly, emulated types as their wider type."""
    stored = input_type(leaf.value.dtype) or dtype
    value = walker.g.input(leaf.name, TensorType(stored, tuple(leaf.value.shape)))
    return emit.cast(walker.g, plain(value), dtype)


def _outputs(
    walker: JaxprWalker, traced: TracedFunction, results: list[Known]
) -> dict[str, Tensor]:
    """Return the results that are not new states, by name; a leading scalar is the loss."""
    outputs: dict[str, Tensor] = {}
    for index, (name, result) in enumerate(zip(traced.outputs, results, strict=True)):
        if index in traced.writes or result is None or isinstance(result, Key):
            continue
        if (tensor := walker.output(name, result)) is not None:
            outputs[name] = tensor
    if "loss" not in outputs and outputs:
        first, tensor = next(iter(outputs.items()))
        if is_loss(tensor):
            outputs = {"loss" if name == first else name: x for name, x in outputs.items()}
    return outputs


def _classes_second(output: Tensor, loss: str) -> Tensor:
    """JAX has the classes last; our losses have them after the batch."""
    if loss not in CROSS_ENTROPIES or output.rank < 3:
        return output
    return permute(output, (0, output.rank - 1, *range(1, output.rank - 1)))


def _write(
    walker: JaxprWalker, traced: TracedFunction, known: Mapping[str, Known], results: list[Known]
) -> None:
    """Assign the new values of states, if changed, after everything else."""
    for index, name in traced.writes.items():
        state, new = known[name], results[index]
        if state is new or isinstance(new, Key) or not isinstance(state, Tensor):
            continue
        value = framework_order(walker.g, walker.tensor(new))
        if value is state.value:
            continue
        if walker.g.graph.params[name].trainable:
            raise ImportModelError(
                f"{traced.name} changes its trainable parameter {name} itself; keep what changes "
                "in another collection, or compile the whole step (carried=...)"
            )
        walker.g.emit("assign", state.value, value)


def put_back(graph: Graph, values: Mapping[str, np.ndarray], tree: Any, argument: str) -> Any:
    """See `to_pytree`."""
    if is_nnx(tree):
        from flax import nnx

        definition, state = nnx.split(tree)
        pure = put_back(graph, values, nnx.to_pure_dict(state), argument)
        nnx.replace_by_pure_dict(state, pure)
        return nnx.merge(definition, state)

    def tuned(path: Any, leaf: Any) -> Any:
        name = joined(argument, path_name(path))
        param = graph.params.get(name)
        if param is None or name not in values:
            return leaf
        array = np.asarray(values[name])
        if array.shape != param.value.shape:
            raise ImportModelError(
                f"{name}: shape {array.shape} is not the graph's {param.value.shape}"
            )
        dtype = getattr(leaf, "dtype", None)  # a plain number has none
        return jax.numpy.asarray(array, dtype if param.value.dtype.is_integer else None)

    return jax.tree_util.tree_map_with_path(tuned, tree)
