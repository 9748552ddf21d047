"""Kernels of update nodes: they write params and states in place, wholly or in part.

An update is pointwise work over the written part; its formula consists of elementwise nodes, which
are lowered to C like any other. The learning rate is read at run time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.elementwise.elementwise import (
    Cut,
    Pointwise,
    cut_space,
    pointwise_kernel,
)
from pockengine.backends.c.elementwise.loops import Access, Body
from pockengine.backends.c.elementwise.pick import TABLE, index_table
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.kernel import Kernel, read, write
from pockengine.backends.native.numbers import of_one_shape, table
from pockengine.backends.native.scalars import c_scalar
from pockengine.backends.native.text import Code
from pockengine.backends.space import Strides, broadcast_strides, collapse, contiguous_strides
from pockengine.compiler.ir import Builder, Graph, Node, Shape, TensorType
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device


def gather_functions(vector: str, element: str) -> str:
    """Return the functions that gather and scatter columns at the indices of the table.

    The channels of a depthwise weight are its columns.
    """
    return f"""PE_INLINE {vector} PE_FN(gather)(const {element} *from, const ptrdiff_t column,
                              const int lanes) {{
    {vector} v = {{0}};
    PE_UNROLL
    for (int lane = 0; lane < lanes; lane++) {{
        v[lane] = from[{TABLE}[column + lane]];
    }}
    return v;
}}

PE_INLINE void PE_FN(scatter)({element} *to, const {vector} v, const ptrdiff_t column,
                              const int lanes) {{
    PE_UNROLL
    for (int lane = 0; lane < lanes; lane++) {{
        to[{TABLE}[column + lane]] = ({element})v[lane];
    }}
}}"""


@dataclass(frozen=True)
class UpdateCut:
    """Partition of an update, start of each operand's part, and the dimension of an index table.

    `along` is the dimension of the space whose indices are in a table, if any.
    """

    cut: Cut
    starts: tuple[int, ...]
    along: int | None


def choose_update(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition an update node."""
    part = _part(node).shape
    walks, starts = _walks(node, part)
    indexed = node.attrs.get("index") is not None
    kinds = [indexed and axis == node.attrs["axis"] for axis in range(len(part))]
    sizes, walks, merged_kinds = _with_columns(*collapse(part, walks, kinds))
    cut = cut_space(sizes, walks, device)
    along = (
        merged_kinds.index(True) + len(cut.walks[0]) - len(merged_kinds)
        if True in merged_kinds
        else None
    )
    return plain_choice(node, device, cut.label, spec=UpdateCut(cut, tuple(starts), along))


def emit_update(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an update node."""
    spec = choice.spec
    assert isinstance(spec, UpdateCut)
    written = written_operands(node)
    part = _part(node)
    graph = Graph(node.op)
    g = Builder(graph)
    current = [
        g.input(f"x{index}", part if index == 0 else operand.type)
        for index, operand in enumerate(node.operands)
    ]
    results = FORMULAS[node.op](g, node, current)
    accesses = [
        Access(value.name, value, walk, start)
        for value, walk, start in zip(current, spec.cut.walks, spec.starts, strict=True)
    ]
    helpers: Code = ""
    if spec.along is not None:
        index = node.attrs["index"]
        accesses[0] = replace(accesses[0], along=spec.along, table=table(TABLE, index))
        helpers = _helpers(index, accesses[0])
    stores = [(result, accesses[place]) for result, place in zip(results, written, strict=True)]
    parameters = [
        (write if place in written else read)(value.name, value)
        for place, value in enumerate(current)
    ]
    body = Body(dict(zip(current, accesses, strict=True)), graph.nodes, graph.constants, stores)
    work = Pointwise(node.op, tuple(parameters), body, helpers)
    return pointwise_kernel(work, spec.cut, device)


UPDATE = KernelFamily(choose_update, emit_update)


def _with_columns(
    sizes: list[int], walks: list[Strides], kinds: list[object]
) -> tuple[list[int], list[Strides], list[object]]:
    """Add columns of one element if the innermost elements are not contiguous in the param.

    One channel of a depthwise weight is such a part.
    """
    if not walks[0] or walks[0][-1] == 1:
        return sizes, walks, kinds
    return [*sizes, 1], [(*walk, 1) for walk in walks], [*kinds, False]


def _helpers(index: Sequence[int], access: Access) -> Code:
    """The index table, and if it runs along the columns, the gather and the scatter."""
    if not access.gathers:
        return of_one_shape(index_table(index))
    kind = c_scalar(access.value.dtype)
    return f"{index_table(index)}\n{gather_functions(kind.vector, kind.ctype)}"


def _part(node: Node) -> TensorType:
    """Type of the written part."""
    param = node.operands[0].type
    return updated_type(param, node.attrs) if "axis" in node.attrs else param


def _walks(node: Node, part: Shape) -> tuple[list[Strides], list[int]]:
    """Strides over the written part, and the start of each operand's part."""
    shapes = [part, *(operand.shape for operand in node.operands[1:])]
    walks = [broadcast_strides(shape, part) for shape in shapes]
    starts = [0] * len(walks)
    axis = node.attrs.get("axis")
    if axis is not None:
        own = contiguous_strides(node.operands[0].shape)
        walks[0] = own
        index = node.attrs["index"] or (node.attrs["start"],)
        starts[0] = own[axis] * index[0] if len(index) == 1 else 0
    return walks, starts
