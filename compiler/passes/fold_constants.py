"""Constant folding: compute at compile time what no input and no trained weight reaches."""

from collections.abc import Set

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup, node_cost

LARGEST_GROWTH = 4096
"""Bytes by which a folded result may exceed its operands: a broadcast is cheaper than its copy."""

LARGEST_WINDOWS = 1 << 30
"""Bytes that computing a result may take beside it."""


def fixed_values(graph: Graph, written: Set[str]) -> dict[Value, np.ndarray]:
    """Constants, and params that neither train nor are written, here or as `written` says."""
    fixed = dict(graph.constants)
    states = {
        node.operands[index]
        for node in graph.nodes
        for index in lookup(node.op).writes
        if index < len(node.operands)
    }
    for name, param in graph.params.items():
        if not param.trainable and name not in written and param.value not in states:
            fixed[param.value] = param.data
    return fixed


def fold_constants(graph: Graph, written: Set[str]) -> None:
    """Replace nodes whose operands are all fixed by constants holding their results.

    `written` names the params that other entries of the program update. Leaves: fixed params that
    were only folded are unused, for dead code to drop.
    """
    fixed = fixed_values(graph, written)
    kept = []
    for node in graph.nodes:
        known = node.operands and all(operand in fixed for operand in node.operands)
        if lookup(node.op).writes or not known or _is_large(node):
            kept.append(node)
            continue
        with np.errstate(all="ignore"):  # what overflows does so in the program as well
            arrays = tuple(fixed[value] for value in node.operands)
            results = lookup(node.op).eval(arrays, node.attrs)
        for value, result in zip(node.results, results, strict=True):
            value.node = None
            fixed[value] = graph.constants[value] = np.ascontiguousarray(result).reshape(
                value.shape
            )
    graph.nodes[:] = kept


def _is_large(node: Node) -> bool:
    """Whether the result is too much to keep, or the way to it; judged before computing either."""
    held = sum(value.type.nbytes for value in set(node.operands))
    size = sum(value.type.nbytes for value in node.results)
    # A product needs its operands in double precision only, whatever else sums copies its windows.
    windows = 0 if node.op == "matmul" else node_cost(node) * np.dtype(np.float64).itemsize
    return size > held + LARGEST_GROWTH or windows > LARGEST_WINDOWS
