"""Lifetimes of an entry's buffers, in the order of its nodes.

A buffer is the storage of one or more values: a view shares its operand's storage, and an
elementwise kernel, or another that the target permits, overwrites an operand that dies there.
Params and constants have their own storage; scratch lives during its node only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.target import ALIGNMENT

Overwrites = Mapping[str, tuple[int, ...]]
NOTHING: Overwrites = MappingProxyType({})


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
    overwrites: Overwrites = NOTHING,
) -> Lifetimes:
    """Find every buffer; `scratch_bytes` returns a kernel's own scratch.

    `overwrites` are the operand positions that each op's kernels may overwrite.
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
            over = _overwritten(node, result, overwrites)
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
    for operand in over:
        buffer = owner.get(operand)
        dies = buffer is not None and buffer.last == place
        taken = buffer is not None and any(owner.get(other) is buffer for other in node.results)
        if buffer is not None and dies and not taken and buffer.size == result.type.nbytes:
            return buffer
    return None


def _overwritten(node: Node, result: Value, overwrites: Overwrites) -> list[Value]:
    """Return the operands that a node may overwrite with a result."""
    chosen = [node.operands[place] for place in overwrites.get(node.op, ())]
    return [*in_place_operands(node), *(each for each in chosen if each.type == result.type)]


def in_place_operands(node: Node) -> list[Value]:
    """Operands of which an elementwise node reads only the element it is writing."""
    if lookup(node.op).elementwise:
        return [v for v in node.operands if v.type == node.result.type]
    if node.op != "fusion":
        return []
    body: Graph = node.attrs["body"]
    if not all(lookup(inner.op).elementwise for inner in body.nodes):
        return []
    shape, size = node.results[0].shape, node.results[0].dtype.itemsize
    return [v for v in node.operands if v.shape == shape and v.dtype.itemsize == size]


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
