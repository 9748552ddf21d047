"""Decode stored weights late: right before each reader, once per reader."""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass


@dataclass(frozen=True)
class DecodeLate(Pass):
    """Repeat the decoding of a stored param before each of its readers.

    A weight is read in the forward and the backward pass: kept in between, the decoded numbers
    would take the memory that storing them small has saved. Leaves: one reader per decoded result.
    """

    def run(self, graph: Graph) -> None:
        held = {param.value for param in graph.params.values()}
        late = {node.result: node for node in graph.nodes if _decodes(node, held)}
        for value in graph.outputs.values():
            late.pop(value, None)

        def rule(g: Builder, node: Node) -> Sequence[Value] | None:
            if node.results and node.results[0] in late:
                return node.results  # dropped: each reader has its own
            read = [value for value in dict.fromkeys(node.operands) if value in late]
            own = {value: g.repeat(late[value], late[value].operands).result for value in read}
            node.operands = tuple(own.get(value, value) for value in node.operands)
            return None

        rewrite(graph, rule)


def _decodes(node: Node, held: set[Value]) -> bool:
    stored = any(not value.dtype.computed for value in node.operands)
    return lookup(node.op).decodes and stored and held.issuperset(node.operands)
