"""Kernels of elementwise nodes and of fusions without an anchor.

The generated part is one function that loads a tile, evaluates the body and stores all results; the
loops around it are runtime/kernels/elementwise.inc.h. Each element is read before it is written at
the same position, so a result may overwrite an operand of its shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.elementwise.loops import Access, Body, io_struct, io_value, tile_function
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.integers.integer_vectors import by_integer_vectors, integer_lanes
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.expression import check_expression
from pockengine.backends.native.kernel import SYMBOL, Kernel, Parameter, define_kernel, read, write
from pockengine.backends.native.numbers import of_many_shapes, of_one_shape, whole
from pockengine.backends.native.text import Code, Text, defines, joined
from pockengine.backends.space import (
    IterationSpace,
    Strides,
    broadcast_strides,
    by_columns,
    collapse,
    lanes_for,
    space_of,
)
from pockengine.compiler.ir import Graph, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Cut:
    """Partition of pointwise work: its space, each pointer's strides, lanes, and the split among
    threads.

    `by_integers`: with integer vectors only.
    """

    space: IterationSpace
    walks: tuple[Strides, ...]
    lanes: int
    by_columns: bool
    by_integers: bool = False

    @property
    def label(self) -> str:
        """The split among threads, and the lanes of a vector."""
        return f"{'COLUMNS' if self.by_columns else 'ROWS'} x{self.lanes}"


@dataclass(frozen=True)
class Pointwise:
    """The C code of an elementwise computation: its parameters, its body, the helpers of its
    accesses.

    `helpers` are tables of indices and gathers.
    """

    title: str
    parameters: tuple[Parameter, ...]
    body: Body
    helpers: Code = ""


def cut_space(sizes: Sequence[int], walks: Sequence[Strides], device: Device) -> Cut:
    """Partition pointwise work over collapsed dimensions for a device."""
    space, padded = space_of(sizes, walks)
    lanes = lanes_for(space.columns, machine_of(device).streamed)
    return Cut(space, tuple(padded), lanes, by_columns(space, device.cpu.cores))


def choose_elementwise(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition an elementwise node or a fusion of such; CompileError if C cannot express it."""
    body = open_body(node)
    full = next(iter(body.outputs.values())).shape
    for inner in body.nodes:
        if lookup(inner.op).elementwise is False:
            raise CompileError(f"{node}: {body.name} is no elementwise body")
        check_expression(inner)
    if any(value.shape != full for value in body.outputs.values()):
        raise CompileError(f"{node}: results of different shapes cannot share one kernel")
    walks = [broadcast_strides(value.shape, full) for value in values_of(node, body)]
    sizes, walks, _ = collapse(full, walks)
    cut = cut_space(sizes, walks, device)
    if by_integer_vectors(body.nodes, device, cut.space.columns):
        cut = replace(cut, lanes=integer_lanes(device), by_integers=True)
    return plain_choice(node, device, cut.label, spec=cut)


def emit_elementwise(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit an elementwise node, or a fusion of such."""
    cut = choice.spec
    assert isinstance(cut, Cut)
    body = open_body(node)
    parameters = parameters_of(node, body)
    accesses, stores = split_accesses(parameters, values_of(node, body), cut.walks)
    work = Pointwise(
        title=title_of(body.nodes),
        parameters=tuple(parameters),
        body=Body(
            accesses,
            body.nodes,
            body.constants,
            stores,
            by_integers=cut.by_integers,
            paired=machine_of(device).paired,
        ),
    )
    return pointwise_kernel(work, cut, device)


ELEMENTWISE = KernelFamily(choose_elementwise, emit_elementwise)


def pointwise_kernel(work: Pointwise, cut: Cut, device: Device) -> Kernel:
    """Emit a pointwise computation."""
    space = cut.space
    macros = {**space_macros(space, cut.lanes), "PE_BY_COLUMNS": int(cut.by_columns)}
    prelude = [
        of_one_shape(f"/* {work.title} over {space} */"),
        *defines(macros.items()),
        *([work.helpers] if work.helpers else []),
        io_struct(work.parameters),
        tail_macro(space, cut.lanes)
        + _column_loop(cut, device)
        + tile_function(work.body, space, "tile"),
        '#include "kernels/elementwise.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{work.title}",
        shape=str(space),
        isa=device.cpu.isa,
        parameters=work.parameters,
        body=[io_value(work.parameters), f"{SYMBOL}_run(w, &io);"],
        prelude=joined("\n", prelude),
    )


def space_macros(space: IterationSpace, lanes: int) -> dict[str, object]:
    """The template parameters of every kernel over a space."""
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_OUTER": whole(space.outers),
        "PE_ROWS": whole(space.rows),
        "PE_COLUMNS": whole(space.columns),
    }


def tail_macro(space: IterationSpace, lanes: int) -> Text:
    """The lanes of a row's last vector, for kernels without constant columns."""
    return of_many_shapes(f"#define PE_TAIL {space.columns % lanes}\n")


def _column_loop(cut: Cut, device: Device) -> Text:
    """Unroll the loop over two vectors of a row: its addresses would be computed each time."""
    unrolled = machine_of(device).paired and not cut.by_columns
    is_short = cut.space.columns // cut.lanes == 2
    return of_one_shape("#define PE_COLUMN_LOOP PE_UNROLL\n" if unrolled and is_short else "")


def title_of(nodes: Sequence[Node]) -> str:
    """Up to four distinct ops of a body, for a kernel's name."""
    return "_".join(list(dict.fromkeys(node.op for node in nodes))[:4])


def open_body(node: Node) -> Graph:
    """The body of a fusion; a single node counts as a fusion of itself."""
    if node.op == "fusion":
        body: Graph = node.attrs["body"]
        return body
    body = Graph(node.op, inputs=list(dict.fromkeys(node.operands)), nodes=[node])
    body.outputs = {result.name: result for result in node.results}
    return body


def values_of(node: Node, body: Graph) -> list[Value]:
    """The body's value of each kernel pointer: operands, then results.

    A single node that reads one value twice has it twice, as the caller passes it.
    """
    sources = list(body.inputs) if node.op == "fusion" else list(node.operands)
    return [*sources, *body.outputs.values()]


def parameters_of(node: Node, body: Graph) -> list[Parameter]:
    """The kernel's parameters, x0... and y0..., one for each of `values_of`."""
    values, count = values_of(node, body), len(body.outputs)
    sources, outputs = values[:-count], values[-count:]
    parameters = [read(f"x{index}", value) for index, value in enumerate(sources)]
    return [*parameters, *(write(f"y{index}", value) for index, value in enumerate(outputs))]


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
