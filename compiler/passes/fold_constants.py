"""Constant folding: compute at compile time what no input and no trained weight reaches."""

from collections.abc import Set

import numpy as np

from pockengine.compiler.ir.graph import Graph, Value
from pockengine.compiler.ops.registry import lookup

LARGEST_GROWTH = 4096
"""Bytes by which a folded result may exceed its operands: a broadcast is cheaper than its copy."""


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
        definition = lookup(node.op)
        foldable = node.operands and all(operand in fixed for operand in node.operands)
        if definition.writes or not foldable:
            kept.append(node)
            continue
        results = definition.eval(tuple(fixed[value] for value in node.operands), node.attrs)
        held = sum(fixed[value].nbytes for value in node.operands)
        if sum(result.nbytes for result in results) > held + LARGEST_GROWTH:
            kept.append(node)
            continue
        for value, result in zip(node.results, results, strict=True):
            value.node = None
            fixed[value] = graph.constants[value] = np.ascontiguousarray(result).reshape(
                value.shape
            )
    graph.nodes[:] = kept
