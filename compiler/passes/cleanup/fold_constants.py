"""Constant folding: compute at compile time what no input and no trained weight reaches."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import written_values
from pockengine.compiler.ops.registry import lookup, node_cost
from pockengine.compiler.passes.base import Pass

LARGEST_GROWTH = 4096
"""Bytes by which a folded result may exceed its operands: a broadcast is cheaper than its copy."""

LARGEST_WINDOWS = 1 << 30
"""Bytes that computing a result may take beside it."""


def fixed_values(graph: Graph, written: Set[str]) -> dict[Value, Contents]:
    """Constants, and params that neither train nor are written, here or as `written` says.

    Nothing is read; params of which the shape alone is known are left out.
    """
    fixed: dict[Value, Contents] = {v: InMemory(data) for v, data in graph.constants.items()}
    states = {value for node in graph.nodes for value in written_values(node)}
    for name, param in graph.params.items():
        free = not param.trainable and name not in written and param.value not in states
        if free and param.contents.known:
            fixed[param.value] = param.contents
    return fixed


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace nodes whose operands are all fixed by constants holding their results.

    `written` names the params that other entries of the program update. Leaves: fixed params that
    were only folded are unused, for dead code to drop.
    """

    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        fixed = fixed_values(graph, self.written)
        kept = []
        for node in graph.nodes:
            known = node.operands and all(operand in fixed for operand in node.operands)
            if lookup(node.op).writes or not known or _is_large(node):
                kept.append(node)
                continue
            with np.errstate(all="ignore"):  # what overflows does so in the program as well
                arrays = tuple(fixed[value].read() for value in node.operands)
                results = lookup(node.op).eval(arrays, node.attrs)
            for value, result in zip(node.results, results, strict=True):
                value.node = None
                graph.constants[value] = np.ascontiguousarray(result).reshape(value.shape)
                fixed[value] = InMemory(graph.constants[value])
        graph.nodes[:] = kept


def _is_large(node: Node) -> bool:
    """Whether the result is too much to keep, or the way to it; judged before computing either."""
    held = sum(value.type.nbytes for value in set(node.operands))
    size = sum(value.type.nbytes for value in node.results)
    windows = node_cost(node) * np.dtype(np.float64).itemsize if lookup(node.op).window else 0
    return size > held + LARGEST_GROWTH or windows > LARGEST_WINDOWS
