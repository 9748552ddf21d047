"""How written params lie, before any node is written: as the nodes that read them want.

A weight, its gradient and its states meet in elementwise nodes alone. All that so meet lie alike,
and an update moves nothing.
"""

from collections.abc import Callable, Iterator

from pockengine.backends.runtimes.layout import Layout
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup

Wanted = Callable[[Node], Iterator[tuple[Value, Layout]]]
"""Yields the operands and results of a node that its form wants in a layout."""


def settled_layouts(graph: Graph, wanted: Wanted) -> dict[str, Layout]:
    """Return the layouts of the params that meet a value that is wanted in one.

    Of several that are wanted the first is taken.
    """
    leaders: dict[Value, Value] = {}

    def leader(value: Value) -> Value:
        while value in leaders:
            above = leaders[value]
            leaders[value] = leaders.get(above, above)  # so that chains stay short
            value = above
        return value

    for node in graph.nodes:
        for first, second in _alike(node):
            one, other = leader(first), leader(second)
            if one is not other:
                leaders[other] = one
    layouts: dict[Value, Layout] = {}
    for node in graph.nodes:
        for value, layout in wanted(node):
            layouts.setdefault(leader(value), layout)
    found = {name: layouts.get(leader(param.value)) for name, param in graph.params.items()}
    return {name: layout for name, layout in found.items() if layout is not None}


def _alike(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of values of one shape that a node reads and makes element by element."""
    if node.op == "assign" or lookup(node.op).elementwise:
        values = (*node.operands, *node.results)
        largest = max(values, key=lambda value: value.type.size)
        for value in values:
            if value.shape == largest.shape:
                yield largest, value
