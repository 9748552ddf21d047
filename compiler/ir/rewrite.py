"""Rewriting a graph node by node: the loop of every local pass, linear in the graph.

A pass gives a rule that returns replacements of a node's results. The rule sees nodes in order,
with operands already replaced, so the nodes it builds are final.
"""

from collections.abc import Callable, Mapping, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import TensorType

Rule = Callable[[Builder, Node], Sequence[Value] | None]
"""Builds nodes and returns a value for each result of the node; None keeps the node."""


def rewrite(graph: Graph, rule: Rule, replaced: Mapping[Value, Value] | None = None) -> None:
    """Replace each node by what `rule` returns, in place; outputs follow.

    New nodes are inserted at the node's position, in its scope. The node itself is dropped, unless
    the rule appends it (`g.append`) to build on its results. `replaced` holds replacements made
    earlier. If a node and the node that recomputes it are replaced alike, the new nodes recompute
    each other too.
    """
    g = Builder(graph)
    nodes: list[Node] = []
    built: dict[Node, list[Node]] = {}
    replacement = dict(replaced or {})
    with g.into(nodes):
        for node in graph.nodes[:]:
            node.operands = tuple(replacement.get(value, value) for value in node.operands)
            begin = len(nodes)
            with g.scope(node.scope):
                values = rule(g, node)
            if values is None:
                nodes.append(node)
            else:
                replacement.update(zip(node.results, values, strict=True))
                built[node] = nodes[begin:]
                _recompute(built.get(node.recomputes, []) if node.recomputes else [], built[node])
    graph.nodes[:] = nodes
    graph.outputs = {name: replacement.get(v, v) for name, v in graph.outputs.items()}


def _recompute(first: Sequence[Node], again: Sequence[Node]) -> None:
    """Mark each node as recomputing its counterpart, if all have the same kinds."""
    if [_kind(node) for node in first] == [_kind(node) for node in again]:
        for node, copy in zip(first, again, strict=True):
            copy.recomputes = node


def _kind(node: Node) -> tuple[str, list[TensorType]]:
    return node.op, [value.type for value in node.results]


def lower(graph: Graph, rules: Mapping[str, Rule]) -> None:
    """Replace every node of these ops by the result of its op's rule, in place."""

    def rule(g: Builder, node: Node) -> Sequence[Value] | None:
        return rules[node.op](g, node) if node.op in rules else None

    rewrite(graph, rule)
