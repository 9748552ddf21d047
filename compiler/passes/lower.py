"""Lowering: replace every node of some ops by what a rule builds for it."""

from collections.abc import Callable, Mapping

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value, replace_operands, resolve

LoweringRule = Callable[[Builder, Node], tuple[Value, ...]]
"""Builds nodes that compute the same and returns a value for each result of the node."""


def lower(graph: Graph, rules: Mapping[str, LoweringRule]) -> None:
    """Replace every node of these ops by what its rule builds, in place."""
    g = Builder(graph)
    nodes: list[Node] = []
    replacement: dict[Value, Value] = {}
    with g.into(nodes):
        for node in list(graph.nodes):
            node.operands = tuple(resolve(value, replacement) for value in node.operands)
            rule = rules.get(node.op)
            if rule is None:
                nodes.append(node)
                continue
            with g.scope(node.scope):
                replacement.update(zip(node.results, rule(g, node), strict=True))
    graph.nodes[:] = nodes
    replace_operands(graph.nodes, replacement)
    graph.outputs = {name: resolve(value, replacement) for name, value in graph.outputs.items()}
