"""Find a layer's bias in the graph: the parameter added to the layer's result."""

from collections.abc import Mapping, Sequence

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup


def bias_of(graph: Graph, users: Mapping[Value, Sequence[Node]], layer: Node) -> str | None:
    """Follow a layer's result to the trainable vector added to it: its bias, or its norm's.

    Only linear elementwise nodes and views may be between, and each value has one reader.
    """
    value = layer.result
    while len(readers := users.get(value, ())) == 1:
        (reader,) = readers
        definition, place = lookup(reader.op), reader.operands.index(value)
        added = _added_beside(reader, place)
        if added:
            return next((name for v in added if (name := _trained_term(graph, v))), None)
        if place not in definition.linear or not (definition.elementwise or definition.view):
            return None
        value = reader.result
    return None


def is_added(value: Value, node: Node) -> bool:
    """Whether a node is elementwise arithmetic that adds the value to another."""
    definition = lookup(node.op)
    return definition.elementwise and node.operands.index(value) in definition.shifts


def _added_beside(node: Node, place: int) -> list[Value]:
    """The value that a sum, or a norm, adds to its operand at this position."""
    definition = lookup(node.op)
    if definition.elementwise and place not in definition.shifts:
        return []
    return [node.operands[other] for other in definition.shifts if other != place]


def _trained_term(graph: Graph, value: Value) -> str | None:
    """The name of the trainable vector that a summand is, or that is itself added in the
    summand.
    """
    terms = [value]
    if value.node is not None:
        terms += [value.node.operands[place] for place in lookup(value.node.op).shifts]
    for term in terms:
        param = graph.param_of(term)
        if param is not None and param.trainable and len(param.value.shape) == 1:
            return param.name
    return None
