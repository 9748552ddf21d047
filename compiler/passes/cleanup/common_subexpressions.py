"""Common subexpression elimination."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Merge nodes with the same op, operands and attrs, and constants with the same contents.

    Recomputed nodes stay (`Node.recomputes`). Requires: no fusions yet. Leaves: no two other pure
    nodes with the same function and operands.
    """

    def run(self, graph: Graph) -> None:
        seen: dict[Hashable, Node] = {}
        recomputed = graph.recomputed().keys()

        def first(g: Builder, node: Node) -> tuple[Value, ...] | None:
            if lookup(node.op).writes:
                return None
            key = (node.op, tuple(map(id, node.operands)), _freeze(node.attrs))
            equal = seen.setdefault(key, node)
            if equal is node or not recomputed.isdisjoint(equal.results):
                return None
            return equal.results

        rewrite(graph, first, _equal_constants(graph))


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
