"""Kernels of reductions, with the elementwise nodes before and after them in a fusion.

Every reduction is one or two sums, an extreme, a product, or the pair of mean and variance, over
elements that the fusion's body computes. Kept and reduced dimensions are collapsed to a space:
    columns kept     rows reduced, as vectors: reduce_columns.inc.h
    columns reduced  to one number per outer: reduce_rows.inc.h
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.elementwise.elementwise import (
    open_body,
    parameters_of,
    space_macros,
    split_accesses,
    tail_macro,
    title_of,
    values_of,
)
from pockengine.backends.c.elementwise.loops import Body, io_struct, io_value, tile_function
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.integers.integer_vectors import by_integer_vectors, integer_lanes
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.rows.whole_reduction import check_whole_reduction, whole_reduction_kernel
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.expression import check_expression
from pockengine.backends.native.kernel import SYMBOL, Kernel, Parameter, align, define_kernel
from pockengine.backends.native.numbers import of_one_shape
from pockengine.backends.native.text import Code, defines, joined
from pockengine.backends.space import (
    IterationSpace,
    Strides,
    broadcast_strides,
    collapse,
    lanes_for,
)
from pockengine.compiler.ir import F32, Builder, Graph, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

KINDS = {
    "reduce_sum": "SUM",
    "reduce_mean": "SUM",
    "batch_norm_sums": "SUM",
    "reduce_max": "MAX",
    "reduce_min": "MIN",
    "reduce_prod": "PROD",
    "moments": "MOMENTS",
}
"""How each reduction combines elements; names as in runtime/kernels/reduce.inc.h."""


@dataclass(frozen=True)
class ReductionParts:
    """The parts of a reduction: nodes before, the reduction, and nodes after.

    `sums` are what the C accumulators hold at the end: the anchor's results, or what `after` makes
    them from.
    """

    node: Node
    anchor: Node
    body: Graph
    before: Sequence[Node]
    after: Sequence[Node]
    values: tuple[Value, ...]
    kind: str
    sums: tuple[Value, ...]

    @property
    def states(self) -> int:
        """The C accumulators of a result."""
        return len(self.sums)

    @property
    def axes(self) -> tuple[int, ...]:
        """Reduced dimensions of the anchor's first operand."""
        rank = len(self.anchor.operands[0].shape)
        return tuple(self.anchor.attrs.get("axes", range(rank - 1)))

    @property
    def count(self) -> int:
        """Number of elements per result."""
        return math.prod(self.anchor.operands[0].shape[axis] for axis in self.axes)


@dataclass(frozen=True)
class ReductionCut:
    """Partition of a reduction: its space, each pointer's strides, lanes, and the split among
    threads.

    With `by_columns` columns are kept and rows reduced, else columns are reduced. With `by_outer` a
    thread computes whole results; else each has partial sums in scratch, added at the end. With
    `by_integers` only integer vectors are used.
    """

    space: IterationSpace
    walks: tuple[Strides, ...]
    lanes: int
    by_columns: bool
    by_outer: bool
    by_integers: bool = False

    @property
    def label(self) -> str:
        """The kept dimensions, the lanes of a vector, and the split among threads."""
        parallel = "COLUMNS" if self.by_columns else "ROWS"
        return f"{parallel} x{self.lanes} {'of outers' if self.by_outer else 'in parts'}"

    def scratch_bytes(self, reduction: ReductionParts, threads: int) -> int:
        """Bytes of the threads' partial sums."""
        floats = self.space.outers * len(reduction.values) if not self.by_outer else 0
        if self.by_columns:
            floats = reduction.states * align(self.space.columns, self.lanes)
        return 4 * threads * floats


def choose_reduction(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition a reduction, or a fusion around one; CompileError if C cannot express it."""
    if _is_whole(node):
        check_whole_reduction(node)
        return plain_choice(node, device, "WHOLE")
    reduction = _take_apart(node)
    inner = (*reduction.before, *reduction.after)
    for each in inner:
        check_expression(each)
    space, walks, by_columns = _space(reduction, values_of(node, reduction.body))
    threads = device.cpu.cores
    by_integers = by_columns and reduction.kind == "MAX"
    by_integers = by_integers and by_integer_vectors(inner, device, space.columns)
    lanes = lanes_for(space.columns, machine_of(device).streamed)
    cut = ReductionCut(
        space,
        tuple(walks),
        integer_lanes(device) if by_integers else lanes,
        by_columns,
        by_outer=space.outers >= (threads if by_columns else 4 * threads),
        by_integers=by_integers,
    )
    scratch = cut.scratch_bytes(reduction, threads)
    return plain_choice(node, device, cut.label, scratch_bytes=scratch, spec=cut)


def emit_reduction(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit a reduction, or a fusion around one."""
    if _is_whole(node):
        return whole_reduction_kernel(node, device)
    cut = choice.spec
    assert isinstance(cut, ReductionCut)
    reduction, space = _take_apart(node), cut.space
    parameters = parameters_of(node, reduction.body)
    macros = {
        **space_macros(space, cut.lanes),
        "PE_BY_OUTER": int(cut.by_outer),
        "PE_REDUCE": f"PE_REDUCE_{reduction.kind}",
        "PE_VALUES": len(reduction.values),
    }
    if cut.by_columns:
        macros["PE_STATES"] = reduction.states
    title = title_of([*reduction.before[:3], reduction.anchor])
    prelude = [
        of_one_shape(f"/* {title} over {'rows' if cut.by_columns else 'columns'} of {space} */"),
        *defines(macros.items()),
        tail_macro(space, cut.lanes) + io_struct(parameters),
        *_functions(reduction, cut, parameters, paired=machine_of(device).paired),
        f'#include "kernels/reduce_{"columns" if cut.by_columns else "rows"}.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{title}",
        shape=str(space),
        isa=device.cpu.isa,
        parameters=parameters,
        body=[io_value(parameters), f"{SYMBOL}_run(w, &io, scratch);"],
        prelude=joined("\n", prelude),
        scratch_bytes=choice.scratch_bytes,
    )


REDUCTION = KernelFamily(choose_reduction, emit_reduction)


def _is_whole(node: Node) -> bool:
    """Whether this is a reduction of integers."""
    return node.op != "fusion" and not node.operands[0].dtype.is_float


def _take_apart(node: Node) -> ReductionParts:
    body = open_body(node)
    anchors = [inner for inner in body.nodes if not lookup(inner.op).elementwise]
    if len(anchors) != 1 or anchors[0].op not in KINDS:
        raise CompileError(f"{node}: a fused reduction needs one reduction, not {anchors}")
    anchor = anchors[0]
    if anchor.operands[0].dtype is not F32:
        raise CompileError(f"{node}: the C backend reduces f32 only; cast the operand")
    place = body.nodes.index(anchor)
    parts = ReductionParts(
        node,
        anchor,
        body,
        before=body.nodes[:place],
        after=body.nodes[place + 1 :],
        values=(anchor.operands[0],),
        kind=KINDS[anchor.op],
        sums=anchor.results,
    )
    return _scaled_after(parts) if anchor.op == "batch_norm_sums" else parts


def _scaled_after(parts: ReductionParts) -> ReductionParts:
    """Add up dy and dy (x - mean), and multiply the second sum by rstd at the end."""
    nodes: list[Node] = []
    g = Builder(Graph("sums"))
    dy, x, mean, rstd = parts.anchor.operands
    with g.into(nodes):
        product = g.mul(dy, g.sub(x, mean))
    dbeta, dgamma = parts.sums
    unscaled = Value("unscaled", dgamma.type)
    scale = Node("mul", (unscaled, rstd), (dgamma,))
    return replace(
        parts,
        before=[*parts.before, *nodes],
        after=[scale, *parts.after],
        values=(dy, product),
        sums=(dbeta, unscaled),
    )


def _space(
    reduction: ReductionParts, values: Sequence[Value]
) -> tuple[IterationSpace, list[Strides], bool]:
    """The collapsed space, every parameter's strides in it, and whether columns are kept."""
    full = reduction.anchor.operands[0].shape
    axes = set(reduction.axes)
    roles = ["reduced" if axis in axes else "kept" for axis in range(len(full))]
    walks = [_walk(value, reduction, full, axes) for value in values]
    sizes, walks, kinds = collapse(full, walks, roles)
    if not kinds or (reduction.kind == "MOMENTS" and kinds[-1] == "reduced"):
        sizes, kinds, walks = [*sizes, 1], [*kinds, "kept"], [(*walk, 0) for walk in walks]
    by_columns = kinds[-1] == "kept"
    inner = range(len(sizes) - 1)
    outer = [i for i in inner if kinds[i] == "kept"]
    rows = [i for i in inner if kinds[i] == "reduced"]
    order = [*outer, *rows, len(sizes) - 1]
    space = IterationSpace(tuple(sizes[i] for i in outer), tuple(sizes[i] for i in rows), sizes[-1])
    return space, [tuple(walk[i] for i in order) for walk in walks], by_columns


def _walk(value: Value, reduction: ReductionParts, full: Sequence[int], axes: set[int]) -> Strides:
    """Strides of a parameter over the anchor's operand; reduced results lack the reduced axes."""
    shape = value.shape
    if _is_reduced(value, reduction):
        compact = iter(_drop_ones(shape, full, axes))
        shape = tuple(1 if axis in axes else next(compact) for axis in range(len(full)))
    return broadcast_strides(shape, full)


def _is_reduced(value: Value, reduction: ReductionParts) -> bool:
    """Whether a value is computed after the reduction."""
    after = {result for node in (reduction.anchor, *reduction.after) for result in node.results}
    read = {operand for node in reduction.after for operand in node.operands}
    early = {operand for node in reduction.before for operand in node.operands}
    return value in after or (value in read and value not in early)


def _drop_ones(shape: Sequence[int], full: Sequence[int], axes: set[int]) -> list[int]:
    """Sizes of the kept axes in a reduced shape, with or without its reduced axes."""
    rank = len(full) - len(axes)
    if len(shape) == len(full):
        return [size for axis, size in enumerate(shape) if axis not in axes]
    return [1] * (rank - len(shape)) + list(shape)


def _functions(
    reduction: ReductionParts,
    cut: ReductionCut,
    parameters: Sequence[Parameter],
    paired: bool,
) -> list[Code]:
    """The tile function, which computes the reduced elements, and the finish, which stores
    results.
    """
    space = cut.space
    values = values_of(reduction.node, reduction.body)
    constants = reduction.body.constants
    early = {value for node in reduction.before for value in node.results}
    accesses, stores = split_accesses(parameters, values, cut.walks)
    tile = Body(
        accesses,
        reduction.before,
        constants,
        stores=[(value, access) for value, access in stores if value in early],
        values=reduction.values,
        by_integers=cut.by_integers,
        paired=paired and cut.by_columns and reduction.kind in ("MOMENTS", "SUM"),
        tiled=reduction.kind == "SUM",
    )
    finish = Body(
        accesses,
        reduction.after,
        constants,
        stores=[(value, access) for value, access in stores if value not in early],
        bound=_results(reduction),
        by_integers=cut.by_integers,
    )
    extra = f", pe_vf v[{len(reduction.values)}][{_tile_rows(reduction, cut, paired)}]"
    return [
        tile_function(tile, space, "tile", extra),
        tile_function(finish, space, "finish", f", pe_vf s[{reduction.states}][1]"),
    ]


def _tile_rows(reduction: ReductionParts, cut: ReductionCut, paired: bool) -> int:
    """Most rows of a tile, as in reduce_columns.inc.h."""
    if not cut.by_columns:
        return 1
    if reduction.kind != "MOMENTS":
        return 8 if paired and reduction.kind == "SUM" else 4
    return 32 if paired else 8


def _results(reduction: ReductionParts) -> dict[Value, Code]:
    """Final values of the accumulators, as C expressions."""
    share = f"(1.0f / {reduction.count}.0f)"
    sums = reduction.sums
    if reduction.anchor.op == "moments":
        return {sums[0]: "s[0][0]", sums[1]: f"(s[1][0] * {share})"}
    if reduction.anchor.op == "reduce_mean":
        return {sums[0]: f"(s[0][0] * {share})"}
    return {value: f"s[{index}][0]" for index, value in enumerate(sums)}
