"""Run a graph in NumPy through each op's `eval`: the oracle of every test.

Slow and simple on purpose. Reductions accumulate in double precision, so the reference is more
accurate than generated code.
"""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import DType
from pockengine.compiler.ops.registry import lookup, written_operands
from pockengine.errors import GraphError


def run(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    params: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Evaluate every node in order and return the named outputs.

    `params` holds the contents of weights and states by name; update nodes replace them in it.
    Without it each param has its initial data and updates are discarded.
    """
    state = _initial(graph) if params is None else params
    known: dict[Value, np.ndarray] = dict(graph.constants)
    for value in graph.inputs:
        known[value] = _checked(value, inputs)
    for node in graph.nodes:
        _run_node(graph, node, known, state)
    return {name: _read(graph, value, known, state) for name, value in graph.outputs.items()}


def _initial(graph: Graph) -> dict[str, np.ndarray]:
    """Read the contents of the params that the graph reads."""
    used = {operand for node in graph.nodes for operand in node.operands}
    used.update(graph.outputs.values())
    return {param.name: param.data for param in graph.params.values() if param.value in used}


def _run_node(
    graph: Graph, node: Node, known: dict[Value, np.ndarray], state: dict[str, np.ndarray]
) -> None:
    arrays = tuple(_read(graph, operand, known, state) for operand in node.operands)
    results = lookup(node.op).eval(arrays, node.attrs)
    count = len(node.results)
    known.update(zip(node.results, results[:count], strict=True))
    for index, result in zip(written_operands(node), results[count:], strict=False):
        state[node.operands[index].name] = result


def _read(
    graph: Graph, value: Value, known: Mapping[Value, np.ndarray], state: Mapping[str, np.ndarray]
) -> np.ndarray:
    if value in known:
        return known[value]
    if graph.param_of(value) is None:
        raise GraphError(f"{value!r} is read before it is computed")
    return state[value.name]


def _checked(value: Value, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    if value.name not in inputs:
        raise GraphError(f"input {value!r} is missing; given: {', '.join(inputs) or 'none'}")
    array = np.asarray(inputs[value.name])
    if array.shape != value.shape or DType.of(array) is not value.dtype:
        raise GraphError(f"input {value!r} was given {array.dtype}{list(array.shape)}")
    return array
