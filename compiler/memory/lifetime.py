"""Lifetimes of an entry's buffers, in the order of its nodes.

A buffer is the storage of one or more values: a view shares its operand's storage, and an
elementwise kernel, or another that the target permits, overwrites an operand that dies there. So
does a product with an operand of its epilogue: a residual, or the values that mask a gradient.
Params and constants have their own storage; scratch lives during its node only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.anchors import anchors_of
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.target import ALIGNMENT, InPlace

NOTHING = InPlace()


@dataclass(eq=False)
class Buffer:
    """`size` bytes that must stay together from node `first` to node `last`, both included.

    They occupy `room` bytes, a multiple of the alignment. Inputs are alive from -1, before the
    first node; outputs until after the last one.
    """

    size: int
    first: int
    last: int
    values: list[Value] = field(default_factory=list)
    scratch_of: Node | None = None
    alignment: int = ALIGNMENT

    @property
    def room(self) -> int:
        """Bytes occupied in the arena, up to the next aligned offset."""
        return -(-self.size // self.alignment) * self.alignment

    def overlaps(self, other: "Buffer") -> bool:
        """Whether both are alive at some node."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Lifetimes:
    """Buffers of an entry, and values that alias a param or constant."""

    buffers: tuple[Buffer, ...]
    aliases: Mapping[Value, Value]


def lifetimes(
    graph: Graph,
    scratch_bytes: Callable[[Node], int],
    alignment: int = ALIGNMENT,
    in_place: InPlace = NOTHING,
) -> Lifetimes:
    """Find every buffer; `scratch_bytes` returns a kernel's own scratch.

    `in_place` is what its kernels may overwrite.
    """
    last, buffer_of = _last_uses(graph), partial(Buffer, alignment=alignment)
    sources = graph.sources() - set(graph.inputs)
    owner: dict[Value, Buffer] = {}
    aliases: dict[Value, Value] = {}
    buffers: list[Buffer] = []
    shared = partial(_shared, owner=owner, sources=sources, aliases=aliases)

    def own(value: Value, first: int) -> None:
        buffer = buffer_of(value.type.nbytes, first, last.get(value, first), [value])
        owner[value] = buffer
        buffers.append(buffer)

    for value in graph.inputs:
        own(value, -1)
    for place, node in enumerate(graph.nodes):
        scratch = scratch_bytes(node)
        if scratch:
            buffers.append(buffer_of(scratch, place, place, scratch_of=node))
        for result in node.results:
            over = overwritable(node, result, in_place)
            root = shared(node, result, place, over=over)
            if root is None:
                own(result, place)
            elif isinstance(root, Buffer):
                root.values.append(result)
                root.last = max(root.last, last.get(result, place))
                owner[result] = root
            else:
                aliases[result] = root
    return Lifetimes(tuple(buffers), aliases)


def _shared(
    node: Node,
    result: Value,
    place: int,
    owner: Mapping[Value, Buffer],
    sources: set[Value],
    aliases: Mapping[Value, Value],
    over: Sequence[Value],
) -> Buffer | Value | None:
    """Return the buffer, param or constant whose storage `result` can take over, if any."""
    if lookup(node.op).view:
        (operand,) = node.operands
        root = aliases.get(operand, operand)
        return root if root in sources else owner[operand]
    if not over:
        return None
    taken = {owner.get(other) for other in (*node.results, *_read_before(node))}
    for operand in over:
        buffer = owner.get(operand)
        if buffer is None or buffer in taken:
            continue
        if buffer.last == place and buffer.size == result.type.nbytes:
            return buffer
    return None


def overwritable(node: Node, result: Value, in_place: InPlace) -> list[Value]:
    """Return the operands that a node may overwrite with a result."""
    if node.op == "fusion":
        return _of_fusion(node, in_place.epilogues)
    chosen = [node.operands[place] for place in in_place.operands.get(node.op, ())]
    if lookup(node.op).elementwise:
        chosen += node.operands
    return [operand for operand in chosen if operand.type == result.type]


def _of_fusion(node: Node, epilogues: frozenset[str]) -> list[Value]:
    """Operands of which a fused kernel reads only the element that it is writing."""
    body: Graph = node.attrs["body"]
    anchors = anchors_of(body.nodes)
    if not node.results or any(anchor.op not in epilogues for anchor in anchors):
        return []
    shape, size = node.results[0].shape, node.results[0].dtype.itemsize
    before = _read_before(node)
    return [
        operand
        for operand in node.operands
        if operand.shape == shape and operand.dtype.itemsize == size and operand not in before
    ]


def _read_before(node: Node) -> list[Value]:
    """Operands that a fused kernel reads for the sums of its anchor."""
    if node.op != "fusion":
        return []
    body: Graph = node.attrs["body"]
    read = {operand for anchor in anchors_of(body.nodes) for operand in anchor.operands}
    for inner in reversed(body.nodes):
        if not read.isdisjoint(inner.results):
            read.update(inner.operands)
    pairs = zip(node.operands, body.inputs, strict=True)
    return [operand for operand, inside in pairs if inside in read]


def _last_uses(graph: Graph) -> dict[Value, int]:
    """Position of the last node that reads each value; outputs count as read after the last
    node.
    """
    last: dict[Value, int] = {}
    for place, node in enumerate(graph.nodes):
        for operand in node.operands:
            last[operand] = place
    for value in graph.outputs.values():
        last[value] = len(graph.nodes)
    return last
