"""Activations that the way back only compares need not be kept: a bit of each element is enough.

The gradient of an activation function asks where its result (or operand) lay: `gt(y, 0)`, or two
such comparisons. Where nothing else on the way back reads y, but for some of its channels which a
channel-sparse weight needs, the comparison moves to the forward pass and keeps its result as bits,
1/32 of the bytes. What elementwise arithmetic makes from kept values has been let go of before, by
`recompute_elementwise`.
"""

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.passes.schedule import SLICES
from pockengine.compiler.passes.second_computation import (
    is_mask,
    readers_on_the_way_back,
    split_at,
)


def save_masks(graph: Graph, loss: Value) -> None:
    """Free activations that only comparisons, and slices of a part, read after the loss.

    Requires: gradients appended, no fusions. Leaves: the comparisons of such an activation are in
    the forward pass, their results packed bits; its slices are for `schedule` to move there.
    """
    readers = readers_on_the_way_back(graph, loss)
    for value, nodes in readers.items():
        others = [node for node in nodes if not is_mask(node, value)]
        parts = sum(node.result.type.size for node in others if node.op in SLICES)
        sliced = all(node.op in SLICES for node in others)
        if sliced and len(others) < len(nodes) and parts + value.type.size // 32 < value.type.size:
            _pack(graph, loss, value)


def _pack(graph: Graph, loss: Value, value: Value) -> None:
    """Move the comparisons of `value` behind its maker and keep each result as bits."""
    forward, backward = split_at(graph, loss)
    compares = [node for node in backward if value in node.operands and is_mask(node, value)]
    roots = _mask_roots(compares, backward)
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
