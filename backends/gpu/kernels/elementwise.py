"""Kernels of elementwise nodes, and of updates: an item computes an element.

Each element is read before it is written at the same position, so a result may overwrite an operand
of its shape. Updates are the formulas of `compiler/optim/formulas.py` over the written part.
"""

from pockengine.backends.gpu.expression import emit_nodes
from pockengine.backends.gpu.kernel import SYMBOL, GpuKernel, define_kernel, over, read, write
from pockengine.backends.gpu.kernels.fused import BroadcastIndex, compute, open_node, store
from pockengine.backends.gpu.places import broadcast, coordinate, strided
from pockengine.backends.gpu.scalars import scalar_of
from pockengine.backends.space import contiguous_strides
from pockengine.compiler.ir import Builder, Graph, Node, Shape, Value
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.errors import CompileError


def elementwise_kernel(node: Node) -> GpuKernel:
    """Emit one elementwise node, or a fusion of such."""
    opened = open_node(node)
    full = opened.stores[0][0].type
    if any(value.shape != full.shape for value, _ in opened.stores):
        raise CompileError(f"{node}: results of different shapes cannot share one kernel")
    names: dict[Value, str] = {}
    lines = compute(opened, opened.before, names, BroadcastIndex("i", full.shape))
    lines += store(opened, names, "i")
    return define_kernel(opened.title, opened.parameters, [over(full.size, lines)])


def update_kernel(node: Node) -> GpuKernel:
    """Emit an update: it writes params and states in place, wholly or in part."""
    written = written_operands(node)
    param = node.operands[0].type
    part = updated_type(param, node.attrs) if "axis" in node.attrs else param
    g = Builder(Graph(node.op))
    current = [
        g.input(f"x{place}", part if place == 0 else operand.type)
        for place, operand in enumerate(node.operands)
    ]
    results = FORMULAS[node.op](g, node, current)
    places = [broadcast("i", value.shape, part.shape) for value in current]
    helpers = ""
    if node.attrs.get("axis") is not None:
        places[0], helpers = _part_of(node, part.shape)
    names, lines = {}, []
    for value, place in zip(current, places, strict=True):
        kind = scalar_of(value.dtype)
        names[value] = f"v{value.name}"
        lines.append(
            f"const {kind.register} v{value.name} = {kind.load.format(value.name, place)};"
        )
    lines += emit_nodes(g.graph.nodes, names, g.graph.constants)
    for result, at in zip(results, written, strict=True):
        kind = scalar_of(current[at].dtype)
        lines.append(kind.store.format(f"x{at}", places[at], names[result]))
    parameters = [
        (write if place in written else read)(value.name, value)
        for place, value in enumerate(current)
    ]
    return define_kernel(node.op, parameters, [over(part.size, lines, helpers)])


def index_table(index: tuple[int, ...]) -> str:
    """Return a table of compile-time indices."""
    numbers = ", ".join(map(str, index))
    return f"PE_TABLE int {SYMBOL}_index[{len(index)}] = {{{numbers}}};"


def _part_of(node: Node, part: Shape) -> tuple[str, str]:
    """Return the offset of element i of a part in the whole param, and the table it needs."""
    axis, index = node.attrs["axis"], node.attrs["index"]
    own = contiguous_strides(node.operands[0].shape)
    if index is None:
        return strided("i", part, own, node.attrs["start"] * own[axis]), ""
    strides = tuple(0 if place == axis else stride for place, stride in enumerate(own))
    looked_up = f"{SYMBOL}_index[{coordinate('i', part, axis)}] * {own[axis]}"
    return f"{strided('i', part, strides)} + {looked_up}", index_table(index)
