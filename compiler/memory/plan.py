"""Offsets in one arena: buffers that are alive together never overlap.

Optimal packing is NP-hard. Several greedy orders (largest first, longest first, ...) place each
buffer into the tightest gap between those already placed; the smallest arena wins.
"""

from collections.abc import Callable, Mapping, Sequence

from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.program import Allocation, MemoryPlan

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register, of every supported CPU."""

ORDERS: tuple[Callable[[Buffer], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.size),
    lambda b: (-b.last, -b.size),
)


def plan_memory(graph: Graph, scratch_bytes: Callable[[Node], int]) -> MemoryPlan:
    """Place every buffer of an entry in its arena.

    Requires: the graph's order is final. `scratch_bytes` gives the bytes that a node's kernel needs
    for itself, 0 for none.
    """
    alive = lifetimes(graph, scratch_bytes)
    offsets = pack(alive.buffers)
    values, scratch = {}, {}
    for buffer, offset in offsets.items():
        for value in buffer.values:
            values[value] = Allocation(offset, value.type.nbytes)
        if buffer.scratch_of is not None:
            scratch[buffer.scratch_of] = Allocation(offset, buffer.size)
    return MemoryPlan(
        values, scratch, dict(alive.aliases), arena_size(offsets), lower_bound(alive.buffers)
    )


def pack(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    """Return an offset for each buffer: the smallest arena that one of the orders leads to."""
    plans = [_place(sorted(buffers, key=order)) for order in ORDERS]
    return min(plans, key=arena_size)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Largest sum of (aligned) bytes alive at one node."""
    return sum(_aligned(buffer.size) for buffer in peak_buffers(buffers))


def peak_buffers(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers that are alive at the first node where most bytes are."""
    change: dict[int, int] = {}
    for buffer in buffers:
        change[buffer.first] = change.get(buffer.first, 0) + _aligned(buffer.size)
        change[buffer.last + 1] = change.get(buffer.last + 1, 0) - _aligned(buffer.size)
    peak, total, at = 0, 0, 0
    for place in sorted(change):
        total += change[place]
        if total > peak:
            peak, at = total, place
    return [buffer for buffer in buffers if buffer.first <= at <= buffer.last]


def _place(buffers: Sequence[Buffer]) -> dict[Buffer, int]:
    """Put each buffer, in this order, into the tightest gap among those alive with it."""
    offsets: dict[Buffer, int] = {}
    for buffer in buffers:
        busy = sorted(
            (offset, offset + _aligned(other.size))
            for other, offset in offsets.items()
            if other.overlaps(buffer)
        )
        offsets[buffer] = _tightest_gap(busy, _aligned(buffer.size))
    return offsets


def _tightest_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    """Offset of the smallest gap of at least `size` between busy spans, or the end of the last."""
    best, best_gap, end = -1, 0, 0
    for start, stop in busy:
        gap = start - end
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = end, gap
        end = max(end, stop)
    return best if best >= 0 else end


def arena_size(offsets: Mapping[Buffer, int]) -> int:
    """Return the bytes that placed buffers reach up to."""
    return max((offset + _aligned(buffer.size) for buffer, offset in offsets.items()), default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
