"""Constant folding: evaluate nodes that depend on no input and no trained weight."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.writes import written_values
from pockengine.compiler.ops.registry import lookup, node_cost
from pockengine.compiler.passes.base import Pass

LARGEST_GROWTH = 4096
"""Maximum growth in bytes of a folded result over its operands: a broadcast is cheaper than its
copy.
"""

LARGEST_WINDOWS = 1 << 30
"""Maximum temporary bytes for evaluating a node."""


def fixed_values(graph: Graph, written: Set[str]) -> dict[Value, Contents]:
    """Constants, and params that neither train nor are written, here or according to `written`.

    No contents are read; params with only a shape are left out.
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
    """Replace nodes with only fixed operands by constants of their results.

    `written` names the params that other entries of the program update. Leaves: params that were
    fully folded are unused, for dead code elimination to drop.
    """

    written: Set[str] = frozenset()

    def run(self, graph: Graph) -> None:
        fixed = fixed_values(graph, self.written)
        users = graph.users()
        remaining = []
        for node in graph.nodes:
            known = node.operands and all(operand in fixed for operand in node.operands)
            if lookup(node.op).writes or not known or _is_large(node, users):
                remaining.append(node)
                continue
            with np.errstate(all="ignore"):  # overflow happens in the program as well
                arrays = tuple(fixed[value].read() for value in node.operands)
                results = lookup(node.op).eval(arrays, node.attrs)
            for value, result in zip(node.results, results, strict=True):
                value.node = None
                graph.constants[value] = np.ascontiguousarray(result).reshape(value.shape)
                fixed[value] = InMemory(graph.constants[value])
        graph.nodes[:] = remaining


def _is_large(node: Node, users: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether the result, or evaluating it, is too large; checked before evaluation.

    A slice frees its operand only if nothing else reads it.
    """
    slices = lookup(node.op).slices
    freed = sum(v.type.nbytes for v in set(node.operands) if not slices or len(users[v]) == 1)
    size = sum(value.type.nbytes for value in node.results)
    windows = node_cost(node) * np.dtype(np.float64).itemsize if lookup(node.op).window else 0
    return size > freed + LARGEST_GROWTH or windows > LARGEST_WINDOWS
