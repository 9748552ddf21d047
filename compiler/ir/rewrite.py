"""Rewriting a graph node by node: the loop of every local pass, linear in the graph.

A pass gives a rule that returns replacements of a node's results. The rule sees nodes in order,
with operands already replaced, so the nodes it builds are final.
"""

from collections.abc import Callable, Mapping, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value

Rule = Callable[[Builder, Node], Sequence[Value] | None]
"""Builds nodes and returns a value for each result of the node; None keeps the node."""


def rewrite(graph: Graph, rule: Rule, replaced: Mapping[Value, Value] | None = None) -> None:
    """Replace each node by what `rule` returns, in place; outputs follow.

    New nodes are inserted at the node's position, in its scope. The node itself is dropped, unless
    the rule appends it (`g.append`) to build on its results. `replaced` holds replacements made
    earlier.
    """
    g = Builder(graph)
    nodes: list[Node] = []
    replacement = dict(replaced or {})
    with g.into(nodes):
        for node in graph.nodes[:]:
            node.operands = tuple(replacement.get(value, value) for value in node.operands)
            with g.scope(node.scope):
                values = rule(g, node)
            if values is None:
                nodes.append(node)
            else:
                replacement.update(zip(node.results, values, strict=True))
    graph.nodes[:] = nodes
    graph.outputs = {name: replacement.get(v, v) for name, v in graph.outputs.items()}


def lower(graph: Graph, rules: Mapping[str, Rule]) -> None:
    """Replace every node of these ops by the result of its op's rule, in place."""

    def rule(g: Builder, node: Node) -> Sequence[Value] | None:
        return rules[node.op](g, node) if node.op in rules else None

    rewrite(graph, rule)
