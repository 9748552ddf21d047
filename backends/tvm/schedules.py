"""Schedules of TVM's kernels; its default pipeline leaves plain loops on CPUs.

Elementwise blocks are inlined in their readers. A reduction becomes a register tile of results, or
partial sums in lanes if the data are contiguous along the sum. If a TVM primitive refuses, the
kernel stays unchanged: only speed is affected.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm.error import InternalError
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV, ScheduleError
from tvm.tirx import IterVar

LIGHT, HEAVY = 24, 200
"""Maximum operators recomputed per reader instead of stored, and maximum for a single reader."""

CALL = 32
"""Operators that a call counts for: an exponential, or the selection that pads an image."""

FEWEST_LANES = 4

LANES = 16
"""Floats of a tile's row and of a cache line: one AVX-512 vector, two or four of others."""


@dataclass(frozen=True)
class ReductionSchedule:
    """Schedule of a function's reductions.

    A tile of `rows` times `lanes` results is summed in registers, its lanes along the last axis, or
    with `plane` along the last two as one. Without rows `lanes` are partial sums of one result.
    With `padded` the padded image is stored before the sum, else padding is decided at each read.
    """

    rows: int
    lanes: int
    plane: bool = False
    padded: bool = True

    @property
    def label(self) -> str:
        """Name in tables."""
        if not self.rows:
            return f"lanes {self.lanes}"
        name = f"{'plane' if self.plane else 'tile'} {self.rows}x{self.lanes}"
        return name if self.padded else f"{name} unpadded"


def scheduled(function: Any, rows: int, plan: ReductionSchedule | None = None) -> Any:
    """Return a scheduled TIR function, by a plan or by a default for each of its reductions.

    `rows` are those of a register tile. A function without blocks is returned unchanged.
    """
    schedule = Schedule(tvm.IRModule({"main": function}))
    try:
        _inline(schedule, light=LIGHT if plan is None or plan.padded else HEAVY)
    except ScheduleError:
        return function
    for name in _names(schedule, reductions(schedule)):
        chosen = plan or _usual(schedule, schedule.get_sblock(name), rows)
        schedule = _attempt(schedule, name, partial(_tile if chosen.rows else _lanes, plan=chosen))
    for name in _names(schedule, _blocks(schedule)):
        schedule = _attempt(schedule, name, _transpose)
    return schedule.mod["main"]


def reductions(schedule: Schedule) -> list[SBlockRV]:
    """Return the blocks that sum or take a maximum; ScheduleError if there are no blocks."""
    return [block for block in _blocks(schedule) if _extents(schedule, block, IterVar.CommReduce)]


def _blocks(schedule: Schedule) -> list[SBlockRV]:
    blocks: list[SBlockRV] = schedule.get_child_blocks(schedule.get_sblock("root"))
    return blocks


def _extents(schedule: Schedule, block: SBlockRV, kind: int) -> list[int]:
    variables = schedule.get(block).iter_vars
    return [int(each.dom.extent) for each in variables if int(each.iter_type) == kind]


def _names(schedule: Schedule, blocks: Sequence[SBlockRV]) -> list[str]:
    return [schedule.get(block).name_hint for block in blocks]


def _attempt(
    schedule: Schedule, name: str, transform: Callable[[Schedule, SBlockRV], None]
) -> Schedule:
    """Return a schedule with one block transformed; unchanged if TVM refuses."""
    trial = schedule.copy()
    try:
        transform(trial, trial.get_sblock(name))
    except (ScheduleError, InternalError):  # the latter from lanes of a scalar
        return schedule
    return trial


def _inline(schedule: Schedule, light: int) -> None:
    """Inline elementwise blocks in their readers; ScheduleError if there are no blocks."""
    for block in _blocks(schedule):
        readers = schedule.get_consumers(block)
        summed = _extents(schedule, block, IterVar.CommReduce)
        if not summed and readers and _is_worth(schedule, block, readers, light):
            try:
                schedule.compute_inline(block)
            except ScheduleError:
                continue  # it reads what it writes, or writes more than one element


def _is_worth(schedule: Schedule, block: SBlockRV, readers: Sequence[SBlockRV], light: int) -> bool:
    """Whether recomputing a block at each read is cheap enough."""
    cost = _operators(getattr(schedule.get(block).body, "value", None))
    elements = math.prod(_extents(schedule, block, IterVar.DataPar))
    readings = sum(
        math.prod(_extents(schedule, each, IterVar.DataPar))
        * math.prod(_extents(schedule, each, IterVar.CommReduce))
        for each in readers
    )
    if readings <= elements:
        return cost <= HEAVY
    summed = any(_extents(schedule, each, IterVar.CommReduce) for each in readers)
    return cost <= light and (summed or readings <= 2 * elements)


def _operators(value: Any) -> int:
    """Count an expression's operators; a call counts for many."""
    if value is None or isinstance(value, (int, float)):
        return 0
    if args := getattr(value, "args", None):
        return CALL + sum(map(_operators, args))
    names = ("a", "b", "value", "condition", "true_value", "false_value")
    return 1 + sum(_operators(getattr(value, name, None)) for name in names)


def _usual(schedule: Schedule, block: SBlockRV, rows: int) -> ReductionSchedule:
    """The default schedule of a reduction, by its access pattern."""
    if _is_along_sum(schedule, block):
        return ReductionSchedule(0, LANES)
    results = _extents(schedule, block, IterVar.DataPar)
    image = _is_image(results, _extents(schedule, block, IterVar.CommReduce))
    return ReductionSchedule(rows, LANES, plane=image and results[-1] % LANES != 0)


def _is_image(results: Sequence[int], summed: Sequence[int]) -> bool:
    """Whether a block is a convolution in NCHW: products have one summed axis."""
    return len(results) == 4 and len(summed) == 3


def _is_along_sum(schedule: Schedule, block: SBlockRV) -> bool:
    """Whether the summed axis is contiguous in memory: all last indices are summed."""
    inner = schedule.get(block)
    summed = [each.var for each in inner.iter_vars if int(each.iter_type) == IterVar.CommReduce]
    lasts = [read.region[-1].min for read in inner.reads if len(read.region)]
    return bool(lasts) and all(any(last.same_as(var) for var in summed) for last in lasts)


def _loops(schedule: Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """Reorder a block's loops: outer result loops, and the sum's loops."""
    loops, variables = schedule.get_loops(block), schedule.get(block).iter_vars
    kinds = [int(each.iter_type) for each in variables]
    if len(kinds) != len(loops):
        return [], []
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.DataPar]
    summed = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.CommReduce]
    schedule.reorder(*spatial, *summed)
    return spatial, summed


def _extent(schedule: Schedule, loop: LoopRV) -> int:
    return int(schedule.get(loop).extent)


def _tile(schedule: Schedule, block: SBlockRV, plan: ReductionSchedule) -> None:
    """Sum a register tile: loops over the sum outside an unrolled tile of vectors."""
    spatial, summed = _loops(schedule, block)
    extents = [_extent(schedule, loop) for loop in spatial]
    long = [axis for axis, extent in enumerate(extents) if extent > 1]
    if not summed or not long:
        return
    start = long[-2:][0] if plan.plane else long[-1]
    filters = 1
    row = filters if _is_image(extents, [_extent(schedule, loop) for loop in summed]) else start - 1
    vectors = schedule.fuse(*spatial[start:]) if start < len(spatial) - 1 else spatial[start]
    outer, lanes = schedule.split(vectors, [None, _whole_rows(extents, start, plan.lanes)])
    around, tile = spatial[:start], [lanes]
    if 0 <= row < start:
        around[row], unrolled = schedule.split(around[row], [None, _part(extents[row], plan.rows)])
        schedule.unroll(unrolled)
        tile = [unrolled, lanes]
    schedule.reorder(*around, outer, *summed, *tile)
    written = schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(written, outer, preserve_unit_loops=True)
    for vector in (lanes, schedule.get_loops(written)[-1]):
        schedule.vectorize(vector)
    schedule.decompose_reduction(block, summed[0])


def _transpose(schedule: Schedule, block: SBlockRV) -> None:
    """Transpose by squares a buffer that is read along another axis than it is written."""
    inner, loops = schedule.get(block), schedule.get_loops(block)
    axes = [each.var for each in inner.iter_vars]
    if len(inner.reads) != 1 or not inner.reads[0].region or len(loops) != len(axes):
        return
    last = inner.reads[0].region[-1].min
    read = [axis for axis, var in enumerate(axes[:-1]) if var.same_as(last)]
    if not read or int(inner.iter_vars[-1].iter_type) != IterVar.DataPar:
        return
    pairs = [
        schedule.split(loops[axis], [None, _part(_extent(schedule, loops[axis]), LANES)])
        for axis in (read[0], -1)
    ]
    (rows, row), (columns, column) = pairs
    schedule.reorder(rows, columns, row, column)
    schedule.unroll(row)
    schedule.vectorize(column)


def _whole_rows(extents: Sequence[int], start: int, most: int) -> int:
    """The longest vector along the axes from one onwards.

    It is part of a row or whole rows: vectors that ended within another row gave wrong results in
    TVM 0.27, for unknown reasons.
    """
    width = [extent for extent in extents if extent > 1][-1]
    whole = math.prod(extents[start:])
    sizes = (size for size in range(1, most + 1) if whole % size == 0)
    return max(size for size in sizes if size % width == 0 or width % size == 0)


def _lanes(schedule: Schedule, block: SBlockRV, plan: ReductionSchedule) -> None:
    """Sum in lanes along the last axes, then sum the lanes."""
    _, summed = _loops(schedule, block)
    if not summed:
        return
    along = summed.pop()
    while summed and _extent(schedule, along) % plan.lanes:
        along = schedule.fuse(summed.pop(), along)
    lanes = _part(_extent(schedule, along), plan.lanes)
    if lanes >= FEWEST_LANES:
        _, lane = schedule.split(along, [None, lanes])
        sums = schedule.rfactor(lane, 0)
        schedule.vectorize(schedule.get_loops(sums)[-1])


def _part(extent: int, most: int) -> int:
    """The largest divisor of an extent up to a limit."""
    return max(size for size in range(1, most + 1) if extent % size == 0)
