"""Kernels of elementwise nodes: single ones, and fusions without an anchor.

The generated part is one function that loads a tile, evaluates the body and stores all results; the
loops around it are runtime/kernels/elementwise.inc.h. Each element is read before it is written at
the same place, so that a result may lie on an operand of its own shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.kernel import SYMBOL, Kernel, Parameter, define_kernel, read, write
from pockengine.backends.c.loops import (
    Access,
    Body,
    Space,
    Strides,
    broadcast_strides,
    by_columns,
    collapse,
    io_struct,
    io_value,
    lanes_for,
    space_of,
    tile_function,
)
from pockengine.backends.c.tile import machine_of
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.devices.schema import Device
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Pointwise:
    """An elementwise computation over one shape: what is read, computed and written where.

    `helpers` is C that the accesses need: tables of indices, gathers.
    """

    title: str
    parameters: tuple[Parameter, ...]
    space: Space
    body: Body
    helpers: str = ""


def elementwise_kernel(node: Node, device: Device) -> Kernel:
    """Emit one elementwise node, or a fusion of such."""
    return pointwise_kernel(_pointwise(node), device)


def pointwise_kernel(work: Pointwise, device: Device) -> Kernel:
    """Emit a pointwise computation."""
    space = work.space
    lanes = lanes_for(space.columns, machine_of(device).lanes)
    macros = {
        **space_macros(space, lanes),
        "PE_BY_COLUMNS": int(by_columns(space, device.cpu.cores)),
    }
    prelude = [
        f"/* {work.title} over {space} */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        *([work.helpers] if work.helpers else []),
        io_struct(work.parameters),
        tile_function(work.body, space, "tile"),
        '#include "kernels/elementwise.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{work.title}_{space}",
        isa=device.cpu.isa,
        parameters=work.parameters,
        body=[io_value(work.parameters), f"{SYMBOL}_run(w, &io);"],
        prelude="\n".join(prelude),
    )


def space_macros(space: Space, lanes: int) -> dict[str, object]:
    """The template parameters that every kernel over a space has."""
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_OUTER": space.outers,
        "PE_ROWS": space.rows,
        "PE_COLUMNS": space.columns,
    }


def title_of(nodes: Sequence[Node]) -> str:
    """Up to four different ops of a body, for a kernel's name."""
    return "_".join(list(dict.fromkeys(node.op for node in nodes))[:4])


def open_body(node: Node) -> Graph:
    """The body of a fusion; a single node counts as a fusion of itself."""
    if node.op == "fusion":
        body: Graph = node.attrs["body"]
        return body
    body = Graph(node.op, inputs=list(dict.fromkeys(node.operands)), nodes=[node])
    body.outputs = {result.name: result for result in node.results}
    return body


def parameters_of(node: Node, body: Graph) -> tuple[list[Parameter], list[Value]]:
    """The kernel's parameters, x0... and y0..., and the body's value behind each.

    A single node that reads one value twice gets it twice, as the caller passes it.
    """
    sources = list(body.inputs) if node.op == "fusion" else list(node.operands)
    outputs = list(body.outputs.values())
    parameters = [read(f"x{index}", value) for index, value in enumerate(sources)]
    parameters += [write(f"y{index}", value) for index, value in enumerate(outputs)]
    return parameters, [*sources, *outputs]


def _pointwise(node: Node) -> Pointwise:
    body = open_body(node)
    outputs = list(body.outputs.values())
    full = outputs[0].shape
    if any(lookup(inner.op).elementwise is False for inner in body.nodes):
        raise CompileError(f"{node}: {body.name} is no elementwise body")
    if any(value.shape != full for value in outputs):
        raise CompileError(f"{node}: results of different shapes cannot share one kernel")
    parameters, values = parameters_of(node, body)
    strides = [broadcast_strides(value.shape, full) for value in values]
    sizes, walks, _ = collapse(full, strides)
    space, walks = space_of(sizes, walks)
    accesses, stores = split_accesses(parameters, values, walks)
    return Pointwise(
        title=title_of(body.nodes),
        parameters=tuple(parameters),
        space=space,
        body=Body(accesses, body.nodes, body.constants, stores),
    )


def split_accesses(
    parameters: Sequence[Parameter], values: Sequence[Value], walks: Sequence[Strides]
) -> tuple[dict[Value, Access], list[tuple[Value, Access]]]:
    """The loads by value, and the stores in order."""
    accesses: dict[Value, Access] = {}
    stores = []
    for parameter, value, walk in zip(parameters, values, walks, strict=True):
        access = Access(parameter.name, value, walk)
        if parameter.written:
            stores.append((value, access))
        else:
            accesses.setdefault(value, access)
    return accesses, stores
