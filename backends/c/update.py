"""Kernels of update nodes: they write params and states in place, where asked a part only.

An update is pointwise work over the written part; the formula is built from elementwise nodes, so
that there is one way from a formula to C. The learning rate is read at run time.
"""

from collections.abc import Sequence
from dataclasses import replace

from pockengine.backends.c.elementwise import Pointwise, pointwise_kernel
from pockengine.backends.c.kernel import Kernel, read, write
from pockengine.backends.c.loops import (
    Access,
    Body,
    Strides,
    broadcast_strides,
    collapse,
    contiguous_strides,
    space_of,
)
from pockengine.backends.c.pick import TABLE, index_table
from pockengine.compiler.ir import Builder, Graph, Node, TensorType, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.devices.schema import Device

GATHER = f"""PE_INLINE pe_vf PE_FN(gather)(const float *from, const ptrdiff_t column,
                              const int lanes) {{
    pe_vf v = pe_splat(0.0f);
    PE_UNROLL
    for (int lane = 0; lane < lanes; lane++) {{
        v[lane] = from[{TABLE}[column + lane]];
    }}
    return v;
}}

PE_INLINE void PE_FN(scatter)(float *to, const pe_vf v, const ptrdiff_t column, const int lanes) {{
    PE_UNROLL
    for (int lane = 0; lane < lanes; lane++) {{
        to[{TABLE}[column + lane]] = v[lane];
    }}
}}"""
"""Columns at the table's indices: a depthwise weight's channels are its columns."""


def update_kernel(node: Node, device: Device) -> Kernel:
    """Emit an update node."""
    written = [index for index in lookup(node.op).writes if index < len(node.operands)]
    part = _part(node)
    graph = Graph(node.op)
    g = Builder(graph)
    current = [
        g.input(f"x{index}", part if index == 0 else operand.type)
        for index, operand in enumerate(node.operands)
    ]
    results = FORMULAS[node.op](g, node, current)
    index = node.attrs.get("index")
    walks, starts = _walks(node, part, current)
    kinds = [index is not None and axis == node.attrs["axis"] for axis in range(len(part.shape))]
    sizes, walks, kept = _with_columns(*collapse(part.shape, walks, kinds))
    space, walks = space_of(sizes, walks)
    accesses = [
        Access(value.name, value, walk, start)
        for value, walk, start in zip(current, walks, starts, strict=True)
    ]
    if True in kept:
        along = kept.index(True) + len(walks[0]) - len(kept)
        accesses[0] = replace(accesses[0], along=along, table=TABLE)
    stores = [(result, accesses[place]) for result, place in zip(results, written, strict=True)]
    parameters = [
        (write if place in written else read)(value.name, value)
        for place, value in enumerate(current)
    ]
    body = Body(dict(zip(current, accesses, strict=True)), graph.nodes, graph.constants, stores)
    helpers = _helpers(index or (), accesses[0]) if True in kept else ""
    return pointwise_kernel(Pointwise(node.op, tuple(parameters), space, body, helpers), device)


def _with_columns(
    sizes: list[int], walks: list[Strides], kinds: list[object]
) -> tuple[list[int], list[Strides], list[object]]:
    """Add columns of one element where the innermost elements do not touch in the param.

    One channel of a depthwise weight is such a part.
    """
    if not walks[0] or walks[0][-1] == 1:
        return sizes, walks, kinds
    return [*sizes, 1], [(*walk, 1) for walk in walks], [*kinds, False]


def _helpers(index: Sequence[int], access: Access) -> str:
    """The table of indices, and where it walks along the columns the gather and the scatter."""
    return index_table(index) + (f"\n{GATHER}" if access.gathers else "")


def _part(node: Node) -> TensorType:
    """Type of the elements that are written."""
    param = node.operands[0].type
    return updated_type(param, node.attrs) if "axis" in node.attrs else param


def _walks(
    node: Node, part: TensorType, current: Sequence[Value]
) -> tuple[list[Strides], list[int]]:
    """Strides over the written part, and where each operand's part starts."""
    walks = [broadcast_strides(value.shape, part.shape) for value in current]
    starts = [0] * len(current)
    axis = node.attrs.get("axis")
    if axis is not None:
        own = contiguous_strides(node.operands[0].shape)
        walks[0] = own
        index = node.attrs["index"] or (node.attrs["start"],)
        starts[0] = own[axis] * index[0] if len(index) == 1 else 0
    return walks, starts
