"""Choose layouts of written params before any node is written: those that their readers need.

A weight, its gradient and its states are connected by elementwise nodes only. Connected values get
one layout, so an update needs no transpose.
"""

from collections.abc import Callable, Iterator

from pockengine.backends.runtimes.layout import Layout
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup

LayoutRequests = Callable[[Node], Iterator[tuple[Value, Layout]]]
"""Yields the operands and results of a node for which its form needs a layout."""


def settled_layouts(graph: Graph, requests: LayoutRequests) -> dict[str, Layout]:
    """Return the layouts of params that are connected to a value with a required layout.

    If there are several, the first is used.
    """
    leaders: dict[Value, Value] = {}

    def leader(value: Value) -> Value:
        while value in leaders:
            above = leaders[value]
            leaders[value] = leaders.get(above, above)  # path compression
            value = above
        return value

    for node in graph.nodes:
        for first, second in _alike(node):
            one, other = leader(first), leader(second)
            if one is not other:
                leaders[other] = one
    layouts: dict[Value, Layout] = {}
    for node in graph.nodes:
        for value, layout in requests(node):
            layouts.setdefault(leader(value), layout)
    found = {name: layouts.get(leader(param.value)) for name, param in graph.params.items()}
    return {name: layout for name, layout in found.items() if layout is not None}


def _alike(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of same-shaped operands and results of elementwise nodes."""
    if node.op == "assign" or lookup(node.op).elementwise:
        values = (*node.operands, *node.results)
        largest = max(values, key=lambda value: value.type.size)
        for value in values:
            if value.shape == largest.shape:
                yield largest, value
