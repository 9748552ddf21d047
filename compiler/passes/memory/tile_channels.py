"""Tile wide layers in blocks of channels: an inverted bottleneck's expansion is never materialized.

    depthwise(act(conv(x, w)))  =  concat over blocks: depthwise(act(conv(x, w[block])))[block]

A depthwise convolution and the elementwise nodes around it keep channels independent, so tiling the
convolution before it changes no number and multiplies nothing twice. A value that the backward pass
reads has another user and is not tiled. Applied if an expansion would exceed a memory budget.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.rewrite import rewrite
from pockengine.compiler.ops.conv import is_depthwise
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.ops.shape import slice_axis
from pockengine.compiler.passes.base import Pass

FEWEST_CHANNELS = 4
"""Minimum channels of a block: fewer make products slow."""

MARGIN = 32
"""Fraction (1 / MARGIN) of the budget left for small tensors and gaps between large ones."""


@dataclass(frozen=True)
class _Expansion:
    """A convolution, the channelwise nodes after it, and whether its input has other readers."""

    first: Node
    chain: Sequence[Node]
    input_saved: bool

    @property
    def channels(self) -> int:
        """Channels of every value in the chain."""
        return self.first.result.shape[-1]

    @property
    def result(self) -> Value:
        """The result that blocks are concatenated to."""
        return self.chain[-1].result

    def whole(self) -> int:
        """Peak live bytes without tiling."""
        x, y, z = self._sizes()
        return max(x + y, y + z + x * self.input_saved)

    def blocked(self, width: int) -> int:
        """Peak live bytes with blocks of this many channels."""
        x, y, z = self._sizes()
        return max(x + z + -(-y * width // self.channels), 2 * z + x * self.input_saved)

    def _sizes(self) -> tuple[int, int, int]:
        wide = next(node for node in self.chain if node.op == "conv2d").operands[0]
        return tuple(v.type.nbytes for v in (self.first.operands[0], wide, self.result))  # type: ignore[return-value]


@dataclass(frozen=True)
class TileChannels(Pass):
    """Tile every expansion that does not fit a budget of bytes, in the widest blocks that do.

    Requires: the backward pass is appended, if there will be one. Leaves: parts, joined by a
    `concat`.
    """

    memory_budget: int

    def run(self, graph: Graph) -> None:
        readers = _readers(graph)
        budget = self.memory_budget - self.memory_budget // MARGIN
        ends = {found.chain[-1]: found for found in _expansions(graph, readers)}
        widths = {node: _width(found, budget) for node, found in ends.items()}
        cut = (found for end, found in ends.items() if widths[end])
        inside = {node for found in cut for node in (found.first, *found.chain[:-1])}

        def in_blocks(g: Builder, node: Node) -> tuple[Value, ...] | None:
            if node in inside:
                return node.results  # rebuilt in blocks, at the end of the chain
            if not (width := widths.get(node)):
                return None
            found = ends[node]
            spans = (
                range(begin, min(begin + width, found.channels))
                for begin in range(0, found.channels, width)
            )
            parts = [_block(g, found, span) for span in spans]
            return (g.emit("concat", *parts, axis=len(node.result.shape) - 1).result,)

        rewrite(graph, in_blocks)


def _readers(graph: Graph) -> dict[Value, list[Node]]:
    """Readers of each value; an output has None, which is not a node, as a reader."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.operands):
            readers.setdefault(value, []).append(node)
    for value in graph.outputs.values():
        readers[value] = []
    return readers


def _expansions(graph: Graph, readers: Mapping[Value, Sequence[Node]]) -> Iterable[_Expansion]:
    taken: set[Node] = set()
    for node in graph.nodes:
        if node.op == "conv2d" and node.attrs["groups"] == 1 and node not in taken:
            chain = _chain(node, readers)
            if chain:
                taken.update(chain)
                yield _Expansion(node, chain, len(readers[node.operands[0]]) != 1)


def _chain(first: Node, readers: Mapping[Value, Sequence[Node]]) -> list[Node]:
    """Nodes after a convolution up to the smallest result after one depthwise convolution."""
    chain: list[Node] = []
    value, best, depthwise = first.result, 0, False
    while len(readers.get(value, ())) == 1:
        (node,) = readers[value]
        if not depthwise and _is_depthwise(node, value):
            depthwise = True
        elif not _is_by_channel(node, value):
            break
        chain.append(node)
        value = node.result
        if depthwise and (not best or value.type.nbytes < chain[best - 1].result.type.nbytes):
            best = len(chain)
    return chain[:best]


def _is_depthwise(node: Node, value: Value) -> bool:
    if node.op != "conv2d" or node.operands[0] is not value:
        return False
    x, w = (operand.shape for operand in node.operands)
    return is_depthwise(x, w, node.attrs["groups"]) and w[3] == x[3]


def _is_by_channel(node: Node, value: Value) -> bool:
    """Whether a node is elementwise, with operands of one number or one per channel."""
    if not lookup(node.op).elementwise or len(node.results) != 1:
        return False
    others = [operand for operand in node.operands if operand is not value]
    channels = value.shape[-1]
    return node.result.shape == value.shape and all(
        other.type.size == 1 or other.type.size == other.shape[-1] == channels for other in others
    )


def _width(found: _Expansion, budget: int) -> int:
    """Return the channels of a block; 0 if the whole fits, or if blocks save nothing."""
    if found.whole() <= budget:
        return 0
    counts = range(2, found.channels // FEWEST_CHANNELS + 1)
    widths = [-(-found.channels // count) for count in counts]
    widths = [-(-width // FEWEST_CHANNELS) * FEWEST_CHANNELS for width in widths]
    fitting = [width for width in widths if found.blocked(width) <= budget]
    width = next(iter(fitting), widths[-1] if widths else 0)
    return width if width and found.blocked(width) < found.whole() else 0


def _block(g: Builder, found: _Expansion, span: range) -> Value:
    """The same nodes for a block of channels."""
    x, weight = found.first.operands
    whole = found.first.result
    with g.scope(found.first.scope):
        part = g.emit("conv2d", x, _cut(g, weight, span), **found.first.attrs).result
    for node in found.chain:
        operands = [part if v is whole else _cut(g, v, span) for v in node.operands]
        attrs = {**node.attrs, "groups": len(span)} if node.op == "conv2d" else node.attrs
        with g.scope(node.scope):
            part, whole = g.emit(node.op, *operands, **attrs).result, node.result
    return part


def _cut(g: Builder, value: Value, span: range) -> Value:
    """Slice the channels of a value with channels along its last dimension."""
    if value.type.size == 1:
        return value
    data = g.graph.constants.get(value)
    if data is not None:
        return g.constant(data[..., span.start : span.stop])
    return slice_axis(g, value, len(value.shape) - 1, span)
