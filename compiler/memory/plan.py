"""Offsets in one arena, without overlap of buffers that are alive together.

Optimal packing is NP-hard. Several greedy orders (largest first, longest first, ...) place each
buffer into the tightest gap between those already placed; the smallest arena wins.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.memory.lifetime import NOTHING, Buffer, lifetimes
from pockengine.compiler.program import Allocation, MemoryPlan
from pockengine.compiler.target import ALIGNMENT, InPlace

ORDERS: tuple[Callable[[Buffer], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.first),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.size * (b.last - b.first + 1), b.first),
    lambda b: (b.first, -b.size),
    lambda b: (-b.last, -b.size),
)

MENDINGS = 48
"""Retries for a plan with gaps: 16 close half of the gaps of int8 nets, 48 most."""

MENDED = 12_000_000
"""Maximum number of buffer pairs examined by all retries together: a second of work."""

NO_GAP = np.iinfo(np.int64).max
"""Size of a gap that is too small."""


def plan_memory(
    graph: Graph,
    scratch_bytes: Callable[[Node], int],
    alignment: int = ALIGNMENT,
    in_place: InPlace = NOTHING,
) -> MemoryPlan:
    """Place every buffer of an entry in its arena.

    Requires: the graph's order is final. `scratch_bytes` returns the scratch bytes of a node's
    kernel. Offsets are multiples of `alignment` bytes. `in_place` is the target's field.
    """
    alive = lifetimes(graph, scratch_bytes, alignment, in_place)
    offsets = pack(alive.buffers)
    values, scratch = {}, {}
    for buffer, offset in offsets.items():
        for value in buffer.values:
            values[value] = Allocation(offset, value.type.nbytes)
        if buffer.scratch_of is not None:
            scratch[buffer.scratch_of] = Allocation(offset, buffer.size)
    return MemoryPlan(
        values,
        scratch,
        dict(alive.aliases),
        size=arena_size(offsets),
        lower_bound=lower_bound(alive.buffers),
        in_place=in_place,
    )


def pack(buffers: Sequence[Buffer], enough: int = 0) -> dict[Buffer, int]:
    """Return an offset for each buffer, from the order that gives the smallest arena.

    Ties go to the first, so the search stops at the lower bound, or at an arena of `enough` bytes.
    If gaps remain, the buffers on top of the smallest arena are placed earlier, a few times over.
    """
    least, best, size = max(enough, lower_bound(buffers)), None, math.inf
    for order in ORDERS:
        offsets = _place(sorted(buffers, key=order), size)
        if offsets is not None:
            best, size = offsets, arena_size(offsets)
        if size <= least:
            break
    assert best is not None
    return best if size <= least else _mended(best, least)


def _mended(best: dict[Buffer, int], least: int) -> dict[Buffer, int]:
    """Retry, each time placing first what was on top; return the smallest arena."""
    offsets, size = best, arena_size(best)
    order = list(best)
    for _ in range(min(MENDINGS, MENDED // len(order) ** 2)):
        end = arena_size(offsets)
        top = {buffer for buffer, offset in offsets.items() if offset + buffer.room == end}
        order = [*(b for b in order if b in top), *(b for b in order if b not in top)]
        placed = _place(order, math.inf)
        assert placed is not None
        offsets = placed
        if arena_size(offsets) < size:
            best, size = offsets, arena_size(offsets)
        if size <= least:
            break
    return best


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Largest sum of (aligned) bytes alive at one node."""
    return sum(buffer.room for buffer in peak_buffers(buffers))


def peak_buffers(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Buffers alive at the first node with the most live bytes."""
    change: dict[int, int] = {}
    for buffer in buffers:
        change[buffer.first] = change.get(buffer.first, 0) + buffer.room
        change[buffer.last + 1] = change.get(buffer.last + 1, 0) - buffer.room
    peak, total, at = 0, 0, 0
    for place in sorted(change):
        total += change[place]
        if total > peak:
            peak, at = total, place
    return [buffer for buffer in buffers if buffer.first <= at <= buffer.last]


def _place(buffers: Sequence[Buffer], limit: float) -> dict[Buffer, int] | None:
    """Put each buffer, in this order, into the tightest gap among those alive with it.

    None if the arena reaches `limit`. Placed buffers lie in arrays sorted by offset, so each search
    takes a few NumPy operations.
    """
    offsets: dict[Buffer, int] = {}
    spans = np.empty((4, len(buffers)), np.int64)  # of each placed buffer
    for count, buffer in enumerate(buffers):
        size = buffer.room
        start, stop, first, last = spans[:, :count]
        alive = first <= buffer.last
        alive &= last >= buffer.first
        offset = _tightest_gap(start[alive], stop[alive], size)
        if offset + size >= limit:
            return None
        offsets[buffer] = offset
        at = int(start.searchsorted(offset, side="right"))
        spans[:, at + 1 : count + 1] = spans[:, at:count]
        spans[:, at] = offset, offset + size, buffer.first, buffer.last
    return offsets


def _tightest_gap(start: np.ndarray, stop: np.ndarray, size: int) -> int:
    """Offset of the smallest gap of at least `size` between busy spans, or the end of the last
    span.
    """
    if not start.size:
        return 0
    ends = np.maximum.accumulate(stop)
    gaps = start.copy()
    gaps[1:] -= ends[:-1]
    gaps[gaps < size] = NO_GAP
    at = int(gaps.argmin())
    if gaps[at] == NO_GAP:
        return int(ends[-1])
    return int(ends[at - 1]) if at else 0


def arena_size(offsets: Mapping[Buffer, int]) -> int:
    """Return the end of the placed buffers in bytes."""
    return max((offset + buffer.room for buffer, offset in offsets.items()), default=0)
