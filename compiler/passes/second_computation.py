"""What computes a forward value a second time on the way back, for passes that let go of it."""

from collections.abc import Sequence, Set

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import BOOL
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.schedule import SLICES

SMALLEST = 1024
"""Elements below which keeping a value costs nothing worth a kernel."""


def split_at(graph: Graph, loss: Value) -> tuple[list[Node], list[Node]]:
    """Return the nodes up to the one that makes `loss`, and those after it."""
    assert loss.node is not None
    last = graph.nodes.index(loss.node)
    return graph.nodes[: last + 1], graph.nodes[last + 1 :]


def readers_on_the_way_back(graph: Graph, loss: Value) -> dict[Value, list[Node]]:
    """Large float values that nodes before the loss make, with the nodes after it that read them.

    The graph's outputs are not among them, as they stay anyway.
    """
    forward, backward = split_at(graph, loss)
    outputs = set(graph.outputs.values())
    made = {result for node in forward for result in node.results}
    readers: dict[Value, list[Node]] = {}
    for node in backward:
        for operand in dict.fromkeys(node.operands):
            if operand in made:
                readers.setdefault(operand, []).append(node)
    return {
        value: nodes
        for value, nodes in readers.items()
        if value not in outputs and value.type.size >= SMALLEST and value.dtype.is_float
    }


def is_mask(node: Node, value: Value) -> bool:
    """Whether a node compares `value` with scalars, so that bits of it are enough."""
    others = [operand for operand in node.operands if operand is not value]
    compares = lookup(node.op).elementwise and node.result.dtype is BOOL
    return compares and all(other.type.size == 1 for other in others)


def read_whole(backward: Sequence[Node]) -> set[Value]:
    """Values of which these nodes read more than bits or some channels: they must be kept."""
    return {
        operand
        for node in backward
        if node.op not in SLICES
        for operand in node.operands
        if not is_mask(node, operand)
    }


def elementwise_chain(value: Value, kept: Set[Value]) -> list[Node] | None:
    """Nodes, in order, that compute `value` from kept values, sources and small vectors alone.

    None where that takes a node that is not elementwise, or one of another shape. Visits each node
    once: a value read twice would otherwise double the work at every step back.
    """
    chain: dict[Node, None] = {}
    pending = [value]
    while pending:
        node = pending[-1].node
        if node is None or not lookup(node.op).elementwise or pending[-1].shape != value.shape:
            return None
        missing = [
            operand
            for operand in node.operands
            if operand not in kept and operand.node is not None and operand.node not in chain
            if operand.type.size >= SMALLEST
        ]
        if missing:
            pending.append(missing[0])
        else:
            chain[node] = None
            pending.pop()
    return list(chain)


def compute_again(
    graph: Graph, loss: Value, value: Value, chain: Sequence[Node]
) -> dict[Value, Value]:
    """Clone the chain that makes `value` before its first reader after the loss, for all of them.

    Other results of the chain are read from the clones too. Returns the clone of each result.
    """
    forward, backward = split_at(graph, loss)
    place = next(i for i, node in enumerate(backward) if value in node.operands)
    again: list[Node] = []
    copies: dict[Value, Value] = {}
    g = Builder(graph)
    with g.into(again):
        for node in chain:
            with g.scope(node.scope):
                operands = (copies.get(operand, operand) for operand in node.operands)
                copies[node.result] = g.emit(node.op, *operands, **node.attrs).result
    for reader in backward[place:]:
        reader.operands = tuple(copies.get(operand, operand) for operand in reader.operands)
    graph.nodes[:] = [*forward, *backward[:place], *again, *backward[place:]]
    delay_writes(graph)
    return copies
