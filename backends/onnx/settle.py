"""How written params lie, before any node is written: as the convolutions that read them want.

A weight, its gradient and its states meet in elementwise nodes alone. All that so meet lie alike,
and an update moves nothing.
"""

from collections.abc import Iterator

from pockengine.backends.onnx.layout import WEIGHT_FIRST, Layout
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup

WEIGHTS = {"conv2d": 1, "conv2d_dx": 1}
"""Operands that are windows."""


def settled_layouts(graph: Graph) -> dict[str, Layout]:
    """Return the layouts of the params that meet a convolution's weight or its gradient."""
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
    windows = {leader(value) for node in graph.nodes for value in _windows(node)}
    return {
        name: WEIGHT_FIRST for name, param in graph.params.items() if leader(param.value) in windows
    }


def _alike(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield pairs of values of one shape that a node reads and makes element by element."""
    if node.op == "assign" or lookup(node.op).elementwise:
        values = (*node.operands, *node.results)
        largest = max(values, key=lambda value: value.type.size)
        for value in values:
            if value.shape == largest.shape:
                yield largest, value


def _windows(node: Node) -> tuple[Value, ...]:
    if node.op == "conv2d_dw":
        return (node.result,)
    return (node.operands[WEIGHTS[node.op]],) if node.op in WEIGHTS else ()
