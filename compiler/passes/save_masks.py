"""Activations that the way back only compares need not be kept: a bit of each element is enough.

The gradient of an activation function asks where its result (or operand) lay: `gt(y, 0)`, or two
such comparisons. Where nothing else on the way back reads y, either y is elementwise arithmetic on
values that are kept anyway (batch norm in training mode), and the comparison computes it again; or
the comparison moves to the forward pass and keeps its result as bits, 1/32 of the bytes.
"""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import BOOL
from pockengine.compiler.ops.registry import lookup

SMALLEST = 1024
"""Elements below which a mask is not worth a kernel."""


def save_masks(graph: Graph, loss: Value) -> None:
    """Free activations that only comparisons read after the loss.

    Requires: gradients appended, no fusions. Leaves: such an activation is computed again from what
    is kept anyway, or its comparisons are packed bits.
    """
    for value in _compared_only(graph, loss):
        if not _compute_again(graph, loss, value):
            _pack(graph, loss, value)


def _split(graph: Graph, loss: Value) -> tuple[list[Node], list[Node]]:
    assert loss.node is not None
    last = graph.nodes.index(loss.node)
    return graph.nodes[: last + 1], graph.nodes[last + 1 :]


def _compared_only(graph: Graph, loss: Value) -> list[Value]:
    """Forward results that backward nodes read for masks alone."""
    forward, backward = _split(graph, loss)
    outputs = set(graph.outputs.values())
    made = {result for node in forward for result in node.results}
    readers: dict[Value, list[Node]] = {}
    for node in backward:
        for operand in dict.fromkeys(node.operands):
            if operand in made:
                readers.setdefault(operand, []).append(node)
    return [
        value
        for value, nodes in readers.items()
        if value not in outputs and value.type.size >= SMALLEST and value.dtype.is_float
        if all(_is_mask(node, value) for node in nodes)
    ]


def _is_mask(node: Node, value: Value) -> bool:
    """Whether a node compares `value` with scalars."""
    others = [operand for operand in node.operands if operand is not value]
    compares = lookup(node.op).elementwise and node.result.dtype is BOOL
    return compares and all(other.type.size == 1 for other in others)


def _compute_again(graph: Graph, loss: Value, value: Value) -> bool:
    """Clone the elementwise nodes that make `value` before its first backward reader, if kept."""
    forward, backward = _split(graph, loss)
    kept = {operand for node in backward for operand in node.operands}
    chain = _elementwise_chain(value, kept - {value})
    if chain is None:
        return False
    place = next(i for i, node in enumerate(backward) if value in node.operands)
    again: list[Node] = []
    copies: dict[Value, Value] = {}
    g = Builder(graph)
    with g.into(again):
        for node in chain:
            with g.scope(node.scope):
                operands = (copies.get(operand, operand) for operand in node.operands)
                copies[node.result] = g.emit(node.op, *operands, **node.attrs).result
    for reader in backward:
        reader.operands = tuple(copies.get(operand, operand) for operand in reader.operands)
    graph.nodes[:] = [*forward, *backward[:place], *again, *backward[place:]]
    return True


def _elementwise_chain(value: Value, kept: set[Value]) -> list[Node] | None:
    """Nodes, in order, that compute `value` from kept values, sources and small vectors alone."""
    node = value.node
    if node is None or not lookup(node.op).elementwise:
        return None
    chain: list[Node] = []
    for operand in node.operands:
        if operand in kept or operand.node is None or operand.type.size < SMALLEST:
            continue
        inner = _elementwise_chain(operand, kept)
        if inner is None or operand.shape != value.shape:
            return None
        chain.extend(other for other in inner if other not in chain)
    return [*chain, node]


def _pack(graph: Graph, loss: Value, value: Value) -> None:
    """Move the comparisons of `value` behind its maker and keep each result as bits."""
    forward, backward = _split(graph, loss)
    roots = _mask_roots([node for node in backward if value in node.operands], backward)
    moved, unpacked = [], {}
    g = Builder(graph)
    for root, members in roots.items():
        moved += [node for node in members if node not in moved]
        with g.into(moved):
            bits = g.pack_mask(root)
        late: list[Node] = []
        with g.into(late):
            unpacked[root] = (g.unpack_mask(bits, channels=root.shape[-1]), late)
    backward = [node for node in backward if node not in moved]
    for root, (mask, late) in unpacked.items():
        place = next(i for i, node in enumerate(backward) if root in node.operands)
        for node in backward:
            node.operands = tuple(mask if v is root else v for v in node.operands)
        backward[place:place] = late
    assert value.node is not None
    after = forward.index(value.node) + 1
    graph.nodes[:] = [*forward[:after], *moved, *forward[after:], *backward]


def _mask_roots(compares: list[Node], backward: list[Node]) -> dict[Value, list[Node]]:
    """Masks that other nodes than mask arithmetic read, with the nodes that make each, in order."""
    members: dict[Value, list[Node]] = {node.result: [node] for node in compares}
    for node in backward:
        logical = node.op in ("logical_and", "logical_or", "logical_not")
        if logical and all(operand in members for operand in node.operands):
            parts = [inner for operand in node.operands for inner in members[operand]]
            members[node.result] = [*dict.fromkeys(parts), node]
    inside = {node for nodes in members.values() for node in nodes}
    return {
        mask: nodes
        for mask, nodes in members.items()
        if any(mask in node.operands and node not in inside for node in backward)
    }
