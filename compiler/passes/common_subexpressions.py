"""Common subexpressions: compute equal things once."""

from collections.abc import Hashable
from typing import Any

from pockengine.compiler.ir.graph import Graph, Node, Value, resolve
from pockengine.compiler.ops.registry import lookup


def common_subexpressions(graph: Graph) -> None:
    """Merge nodes with the same op, operands and attrs, and constants with the same contents.

    Requires: no fusions yet. Leaves: no two pure nodes with the same function and operands.
    """
    replacement = _equal_constants(graph)
    seen: dict[Hashable, Node] = {}
    kept = []
    for node in graph.nodes:
        node.operands = tuple(resolve(value, replacement) for value in node.operands)
        if not lookup(node.op).writes:
            key = (node.op, tuple(map(id, node.operands)), _freeze(node.attrs))
            first = seen.setdefault(key, node)
            if first is not node:
                replacement.update(zip(node.results, first.results, strict=True))
                continue
        kept.append(node)
    graph.nodes[:] = kept
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}


def _equal_constants(graph: Graph) -> dict[Value, Value]:
    seen: dict[Hashable, Value] = {}
    replacement: dict[Value, Value] = {}
    for value, data in list(graph.constants.items()):
        first = seen.setdefault((value.type, data.tobytes()), value)
        if first is not value:
            replacement[value] = first
            del graph.constants[value]
    return replacement


def _freeze(attrs: dict[str, Any]) -> Hashable:
    return tuple(sorted((name, repr(value)) for name, value in attrs.items()))
