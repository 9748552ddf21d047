"""Save one bit per element of activations that the backward pass only compares.

The gradient of an activation function needs only the range of its result (or operand): `gt(y, 0)`,
or two such comparisons. If nothing else in the backward pass reads y, except some channels that a
channel-sparse weight needs, the comparison moves to the forward pass and its result is saved as
bits, 1/32 of the bytes. Results of elementwise arithmetic on saved values have been dropped before,
by `recompute_elementwise`.
"""

from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.types import BOOL
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.base import Pass
from pockengine.compiler.passes.memory.second_computation import (
    Backward,
    backward_readers,
    is_mask,
)


@dataclass(frozen=True)
class SaveMasks(Pass):
    """Free activations with only comparisons and partial slices as readers after the loss.

    Requires: gradients appended, no fusions. Leaves: the comparisons of such an activation are in
    the forward pass, their results packed bits; its slices are for `schedule` to move there.
    """

    def run(self, graph: Graph) -> None:
        readers = backward_readers(graph, graph.outputs[LOSS])
        backward = Backward(graph, graph.outputs[LOSS])
        g, behind = Builder(graph), dict[Node, list[Node]]()
        for value, nodes in readers.items():
            others = [node for node in nodes if not is_mask(node, value)]
            parts = sum(node.result.type.size for node in others if lookup(node.op).slices)
            sliced = all(lookup(node.op).slices for node in others)
            if (
                sliced
                and len(others) < len(nodes)
                and parts + value.type.size // 32 < value.type.size
            ):
                assert value.node is not None
                moved = _pack(g, backward, value)
                behind[value.node] = [*moved, *behind.get(value.node, ())]
        backward.forward = [
            each for node in backward.forward for each in (node, *behind.get(node, ()))
        ]
        backward.finish()


def _pack(g: Builder, backward: Backward, value: Value) -> list[Node]:
    """Move the comparisons of `value` out of the backward pass, which reads each result as bits
    instead.

    Returns the nodes to insert after the value's producer.
    """
    compares = [node for node in backward.readers(value) if is_mask(node, value)]
    roots = _mask_roots(compares, backward)
    moved: dict[Node, None] = {}
    bits: dict[Value, Value] = {}
    for root, members in roots.items():
        moved |= dict.fromkeys(members)
        packing: list[Node] = []
        with g.into(packing):
            bits[root] = g.pack_mask(root)
        moved |= dict.fromkeys(packing)
    late: dict[Value, tuple[Value, list[Node]]] = {}
    for root, packed in bits.items():
        unpacking: list[Node] = []
        with g.into(unpacking):
            late[root] = (g.unpack_mask(packed, channels=root.shape[-1]), unpacking)
    for node in moved:
        if node in backward:
            backward.remove(node)
    for root, (mask, unpacking) in late.items():
        first = backward.readers(root)[0]
        backward.replace(root, mask)
        backward.insert(unpacking, first)
    return list(moved)


def _mask_roots(compares: list[Node], backward: Backward) -> dict[Value, list[Node]]:
    """Masks that other nodes than mask arithmetic read, with the nodes that make each, in order."""
    members: dict[Value, list[Node]] = {node.result: [node] for node in compares}
    pending = [reader for node in compares for reader in backward.readers(node.result)]
    while pending:
        pending = backward.in_order(dict.fromkeys(pending))
        node = pending.pop(0)
        logical = lookup(node.op).elementwise and node.result.dtype is BOOL
        if logical and all(operand in members for operand in node.operands):
            parts = [inner for operand in node.operands for inner in members[operand]]
            members[node.result] = [*dict.fromkeys(parts), node]
            pending += backward.readers(node.result)
    inside = {node for nodes in members.values() for node in nodes}
    return {
        mask: nodes
        for mask, nodes in members.items()
        if any(reader not in inside for reader in backward.readers(mask))
    }
