"""Copies of a graph, so that each entry of a program can be rewritten on its own."""

from dataclasses import replace

from pockengine.compiler.ir.graph import Graph, Node, Value


def clone(graph: Graph) -> Graph:
    """Copy values and nodes; the arrays of params and constants stay shared."""
    copies: dict[Value, Value] = {}
    nodes: dict[Node, Node] = {}

    def copy(value: Value) -> Value:
        made = copies.get(value)
        if made is None:
            made = copies[value] = Value(value.name, value.type)
        return made

    result = Graph(
        graph.name, checks_indices=graph.checks_indices, recomputation=graph.recomputation
    )
    result.inputs = [copy(value) for value in graph.inputs]
    result.params = {
        name: replace(param, value=copy(param.value)) for name, param in graph.params.items()
    }
    result.constants = {copy(value): data for value, data in graph.constants.items()}
    for node in graph.nodes:
        results = tuple(copy(value) for value in node.results)
        operands = tuple(copy(value) for value in node.operands)
        made = Node(node.op, operands, results, attrs=dict(node.attrs), scope=node.scope)
        for value in results:
            value.node = made
        nodes[node] = made
        result.nodes.append(made)
    for node, made in nodes.items():
        made.recomputes = nodes.get(node.recomputes) if node.recomputes else None
    result.outputs = {name: copy(value) for name, value in graph.outputs.items()}
    return result
