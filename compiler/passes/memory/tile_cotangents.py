"""Tile wide cotangents in blocks of channels if they dominate the arena under a memory budget.

    dx = where(mask, dequantize(conv2d_dx(dy, w)), 0);  db = sum(dx);  q = quantize(dx, max(|dx|))

An input gradient has independent channels, as have the elementwise nodes around it and sums over
pixels. Computed in blocks, each block needs only its part of the mask, and is freed as soon as it
is rounded, so the whole f32 tensor, the whole mask and the whole i8 tensor are never alive at once.
Readers of all channels (the largest magnitude, the next product) read the concatenated blocks. No
number changes, and nothing is multiplied twice; the cost is copies.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.key import remembered
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import arena_size, pack, peak_buffers
from pockengine.compiler.ops.conv import is_depthwise
from pockengine.compiler.ops.mask import WORD
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.ops.shape import slice_axis
from pockengine.compiler.passes.base import Pass, run_passes
from pockengine.compiler.passes.kernels.order import kernel_passes
from pockengine.compiler.passes.memory.tile_channels import FEWEST_CHANNELS
from pockengine.compiler.target import Target

Users = Mapping[Value, Sequence[Node]]
"""Readers of each value."""

LEAST_GAIN = 2
"""Minimum ratio of the cotangent's bytes to those of the concatenated results."""


@dataclass(frozen=True)
class _Region:
    """An input gradient and the channelwise nodes after it, in order.

    `stages` numbers each node: a node of a later stage depends, through nodes outside, on all
    channels of an earlier stage. `joined` are results read outside.
    """

    first: Node
    stages: Mapping[Node, int]
    joined: frozenset[Value]

    @property
    def channels(self) -> int:
        """Channels of every value."""
        return self.first.result.shape[-1]

    def members(self, stage: int) -> list[Node]:
        """Nodes of one stage, in order."""
        return [node for node, at in self.stages.items() if at == stage]

    def sources(self, stage: int) -> set[Value]:
        """Values from outside that a stage reads; for an unpacked mask, its bits."""
        read = (value for node in self.members(stage) for value in node.operands)
        return {_packed(v) or v for v in read if v.node not in self.stages}

    def widths(self) -> list[int]:
        """Possible block widths in channels, widest first; masks are cut between words."""
        masked = any(_packed(value) for node in self.stages for value in node.operands)
        step = WORD if masked else FEWEST_CHANNELS
        counts = range(2, -(-self.channels // step) + 1)
        widths = (-(-self.channels // count // step) * step for count in counts)
        return list(dict.fromkeys(width for width in widths if width < self.channels))


@dataclass(frozen=True)
class TileCotangents(Pass):
    """Tile cotangents alive at the arena's peak until the arena fits, or none helps.

    Requires: gradients appended, no fusions. Leaves: parts, joined by a `concat`. Each is tiled in
    the widest blocks that fit the budget, or else in those with the smallest arena.
    """

    target: Target
    memory_budget: int

    def run(self, graph: Graph) -> None:
        if not any(_regions(graph)):
            return
        kernels = kernel_passes(self.target)
        scratch = remembered(self.target.scratch_bytes)

        def planned(tried: Graph) -> tuple[int, set[str]]:
            copy = clone(tried)
            run_passes(kernels, copy)
            buffers = lifetimes(copy, scratch, self.target.alignment, self.target.in_place).buffers
            return arena_size(pack(buffers)), _names(peak_buffers(buffers))

        arena, at_peak = planned(graph)
        while arena > self.memory_budget:
            found = _smaller(graph, at_peak, arena, budget=self.memory_budget, planned=planned)
            if found is None:
                return
            name, width, arena, at_peak = found
            _cut_named(graph, name, width)


def _names(buffers: list[Buffer]) -> set[str]:
    return {value.name for buffer in buffers for value in buffer.values}


def _smaller(
    graph: Graph,
    at_peak: set[str],
    arena: int,
    budget: int,
    planned: Callable[[Graph], tuple[int, set[str]]],
) -> tuple[str, int, int, set[str]] | None:
    """Try each tiling of values alive at the peak; return the first that fits, or the best."""
    best = None
    for region in _regions(graph, at_peak):
        for width in region.widths():
            tried = clone(graph)
            _cut_named(tried, region.first.result.name, width)
            size, alive = planned(tried)
            if size < arena:
                best, arena = (region.first.result.name, width, size, alive), size
            if size <= budget:
                return best
    return best


def _regions(graph: Graph, at_peak: Container[str] | None = None) -> Iterator[_Region]:
    """Find the input gradients whose blocks are joined to something small.

    With `at_peak`, only those with a value of one of these names.
    """
    users, outputs = graph.users(), set(graph.outputs.values())
    place = {node: at for at, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op != "conv2d_dx" or not _keeps_channels_apart(node):
            continue
        members = _members(node, users, place)
        joined = frozenset(
            v for v in _results(members) if _is_read_outside(v, members, users, outputs)
        )
        small = LEAST_GAIN * sum(v.type.nbytes for v in joined) <= node.result.type.nbytes
        if small and (at_peak is None or any(v.name in at_peak for v in _results(members))):
            region = _Region(node, _stages(graph, members, users, place), joined)
            if _in_time(region, users, place):
                yield region


def _keeps_channels_apart(node: Node) -> bool:
    """Whether a part of the weight gives a part of the result's channels."""
    dy, w = (operand.shape for operand in node.operands)
    x, groups = node.result.shape, node.attrs["groups"]
    return groups == 1 or (is_depthwise(x, w, groups) and dy[-1] == x[-1])


def _members(first: Node, users: Users, place: Mapping[Node, int]) -> list[Node]:
    """Follow an input gradient through channelwise nodes, in order."""
    inside = {first}
    pending = set(users.get(first.result, ()))
    while pending:
        node = min(pending, key=place.__getitem__)
        pending.remove(node)
        if _is_by_channel(node, first, inside):
            inside.add(node)
            pending |= set(users.get(node.result, ()))
    return sorted(inside, key=place.__getitem__)


def _results(members: Iterable[Node]) -> list[Value]:
    return [node.result for node in members]


def _is_read_outside(
    value: Value, members: Container[Node], users: Users, outputs: Container[Value]
) -> bool:
    return value in outputs or any(user not in members for user in users.get(value, ()))


def _stages(
    graph: Graph, members: Sequence[Node], users: Users, place: Mapping[Node, int]
) -> dict[Node, int]:
    """Return each member's stage: how often all channels must have been joined before it."""
    stages: dict[Node, int] = {}
    after: dict[Value, int] = {}  # of values outside: the first stage that may read them
    inside = set(members)
    for node in graph.nodes[place[members[0]] : place[members[-1]] + 1]:
        parts = [stages[v.node] for v in node.operands if v.node in stages]
        waits = [after[v] for v in node.operands if v in after]
        if node in inside:
            stages[node] = max([0, *parts, *waits])
        elif parts or waits:
            first = max([*(stage + 1 for stage in parts), *waits])
            after.update(dict.fromkeys(node.results, first))
    for node in reversed(members):  # nodes that only a later stage reads move there
        readers = users.get(node.result, ())
        if readers and all(reader in inside for reader in readers):
            stages[node] = min(stages[reader] for reader in readers)
    return stages


def _is_by_channel(node: Node, first: Node, inside: Container[Node]) -> bool:
    """Whether a node computes each channel of its result from the same channel of its operands."""
    shape = first.result.shape
    if len(node.results) != 1 or any(
        v.shape == shape[-1:] and v.node in inside for v in node.operands
    ):
        return False
    if lookup(node.op).elementwise:
        return node.result.shape == shape and all(_has_parts(v, shape) for v in node.operands)
    sums = node.attrs.get("axes") == tuple(range(len(shape) - 1))
    return len(node.operands) == 1 and sums and node.result.shape == shape[-1:]


def _has_parts(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether it has one number, one per channel, or one per element."""
    return (
        value.type.size == 1
        or value.shape == shape
        or value.type.size == value.shape[-1] == shape[-1]
    )


def _packed(value: Value) -> Value | None:
    """Return the bits from which a mask is unpacked."""
    made = value.node is not None and value.node.op == "unpack_mask"
    return value.node.operands[0] if made and value.node else None


def _in_time(region: _Region, users: Users, place: Mapping[Node, int]) -> bool:
    """Whether each stage can finish before its results are read."""
    over = -1
    for stage in sorted(set(region.stages.values())):
        members = region.members(stage)
        made = [place[v.node] for v in region.sources(stage) if v.node is not None]
        over = max([over, place[members[0]], *made])
        readers = (
            u for node in members for u in users.get(node.result, ()) if u not in region.stages
        )
        if any(place[reader] <= over for reader in readers):
            return False
    return True


def _cut_named(graph: Graph, name: str, width: int) -> None:
    """Tile the region that begins with the value of this name."""
    (region,) = _regions(graph, {name})
    _Cutter(graph, region, width).run()


class _Cutter:
    """State of one run: the blocks' channels, and the parts of each value built so far."""

    def __init__(self, graph: Graph, region: _Region, width: int) -> None:
        self.graph, self.region = graph, region
        whole = range(region.channels)
        self.spans = [whole[begin : begin + width] for begin in range(0, len(whole), width)]
        self.parts: dict[tuple[Value, range], Value] = {}
        self.joined: dict[Value, Value] = {}
        self.g = Builder(graph)

    def run(self) -> None:
        """Build the stages in blocks, each as soon as its operands exist."""
        region, stages = self.region, sorted(set(self.region.stages.values()))
        missing = {v for stage in stages for v in region.sources(stage) if v.node is not None}
        order: list[Node] = []
        begun: set[Node] = set()
        with self.g.into(order):
            for node in self.graph.nodes:
                if node in region.stages:
                    begun.add(node)
                else:
                    node.operands = tuple(self.joined.get(v, v) for v in node.operands)
                    order.append(node)
                    missing.difference_update(node.results)
                while stages and region.members(stages[0])[0] in begun:
                    if not self._stage_is_ready(stages[0], missing):
                        break
                    self._build(stages.pop(0))
        outputs = self.graph.outputs
        self.graph.outputs = {name: self.joined.get(v, v) for name, v in outputs.items()}
        self.graph.nodes[:] = order
        _drop_unread_masks(self.graph)
        delay_writes(self.graph)  # a stage may read a param later than its first node did

    def _stage_is_ready(self, stage: int, missing: set[Value]) -> bool:
        return not self.region.sources(stage) & missing

    def _build(self, stage: int) -> None:
        """Build a stage's nodes block by block, then concatenate results read outside."""
        members = self.region.members(stage)
        for span in self.spans:
            for node in members:
                with self.g.scope(node.scope):
                    self.parts[node.result, span] = self._block(node, span)
        for node in members:
            if node.result in self.region.joined:
                blocks = [self.parts[node.result, span] for span in self.spans]
                axis = len(node.result.shape) - 1
                self.joined[node.result] = self.g.emit("concat", *blocks, axis=axis).result

    def _block(self, node: Node, span: range) -> Value:
        """The same node for a block of channels."""
        if node is not self.region.first:
            operands = [self._part(value, span) for value in node.operands]
            return self.g.emit(node.op, *operands, **node.attrs).result
        dy, w = node.operands
        shape = (*node.result.shape[:-1], len(span))
        attrs = {**node.attrs, "input_shape": shape}
        if node.attrs["groups"] == 1:
            return self.g.emit("conv2d_dx", dy, slice_axis(self.g, w, 2, span), **attrs).result
        parts = (slice_axis(self.g, value, 3, span) for value in (dy, w))
        return self.g.emit("conv2d_dx", *parts, **{**attrs, "groups": len(span)}).result

    def _part(self, value: Value, span: range) -> Value:
        """Some channels of an operand."""
        if (value, span) in self.parts:
            return self.parts[value, span]
        if value.type.size == 1:
            return value
        data, bits = self.graph.constants.get(value), _packed(value)
        if data is not None:
            return self.g.constant(data[..., span.start : span.stop])
        if bits is None:
            return slice_axis(self.g, value, len(value.shape) - 1, span)
        words = range(span.start // WORD, -(-span.stop // WORD))
        part = slice_axis(self.g, bits, len(bits.shape) - 1, words)
        return self.g.unpack_mask(part, channels=len(span))


def _drop_unread_masks(graph: Graph) -> None:
    """Remove whole masks that only tiled nodes have read."""
    users, outputs = graph.users(), set(graph.outputs.values())
    unread = {
        node
        for node in graph.nodes
        if node.op == "unpack_mask" and node.result not in outputs and node.result not in users
    }
    graph.nodes[:] = [node for node in graph.nodes if node not in unread]
