"""Decode stored weights late: each reader decodes them again, just before it runs."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class DecodeLate(Pass):
    """Decode a stored parameter, or a slice of one, before each of its readers.

    A weight is read in the forward and in the backward pass. Decoded values that live from one to
    the other would take the memory that storage in fewer bits has saved. Leaves: each decoded value
    with one reader.
    """

    def run(self, graph: Graph) -> None:
        params = {param.value for param in graph.params.values()}
        late = {node.result: node for node in graph.nodes if _decodes(node, params)}
        for value in graph.outputs.values():
            late.pop(value, None)
        users = graph.users()
        slices = {
            operand
            for node in late.values()
            for operand in node.operands
            if operand.node is not None and all(late.get(u.results[0]) for u in users[operand])
        }

        def decoded(g: Builder, node: Node) -> Value:
            operands = tuple(
                g.repeat(v.node, v.node.operands).result if v.node is not None else v
                for v in node.operands
            )
            return g.repeat(node, operands).result

        def rule(g: Builder, node: Node) -> Sequence[Value] | None:
            if node.results and (node.results[0] in late or node.results[0] in slices):
                return node.results  # dropped: each reader decodes again
            read = [value for value in dict.fromkeys(node.operands) if value in late]
            own = {value: decoded(g, late[value]) for value in read}
            node.operands = tuple(own.get(value, value) for value in node.operands)
            return None

        rewrite(graph, rule)


def _decodes(node: Node, params: Set[Value]) -> bool:
    small = any(not value.dtype.computed for value in node.operands)
    stored = all(value in params or _slices(value, params) for value in node.operands)
    return lookup(node.op).decodes and small and stored


def _slices(value: Value, params: Set[Value]) -> bool:
    """Whether a value is a constant slice of a parameter."""
    node = value.node
    return node is not None and lookup(node.op).slices and node.operands[0] in params
