"""Kernels of update nodes: they write params and states in place, where asked a slice only.

An update is pointwise work over the written part; the formula is built from elementwise nodes, so
that there is one way from a formula to C. The learning rate is read at run time.
"""

from collections.abc import Sequence

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
from pockengine.compiler.ir import Builder, Graph, Node, TensorType, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.optim.formulas import FORMULAS
from pockengine.devices.schema import Device


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
    walks, starts = _walks(node, part, current)
    sizes, walks, _ = collapse(part.shape, walks)
    space, walks = space_of(sizes, walks)
    accesses = [
        Access(value.name, value, walk, start)
        for value, walk, start in zip(current, walks, starts, strict=True)
    ]
    stores = [(result, accesses[index]) for result, index in zip(results, written, strict=True)]
    parameters = [
        (write if index in written else read)(value.name, value)
        for index, value in enumerate(current)
    ]
    body = Body(dict(zip(current, accesses, strict=True)), graph.nodes, graph.constants, stores)
    return pointwise_kernel(Pointwise(node.op, tuple(parameters), space, body), device)


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
        starts[0] = own[axis] * node.attrs["start"]
    return walks, starts
