"""Kernels of updates with 8-bit states: runtime/simd/pe_states.h around the formula.

Threads split the blocks. The states of a block are decoded into scratch, the formula is computed
there, and the new states are encoded. A part of a param that is not contiguous is also copied to
scratch and back.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.elementwise.elementwise import space_macros
from pockengine.backends.c.elementwise.loops import Access, Body, io_struct, tile_function
from pockengine.backends.c.elementwise.pick import TABLE, index_table
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import SYMBOL, Kernel, Parameter, define_kernel, read, write
from pockengine.backends.native.numbers import VALUES
from pockengine.backends.native.text import Code, defines, fill, indented, joined
from pockengine.backends.space import lanes_for, space_of
from pockengine.compiler.ir import Builder, Graph, Node, Value
from pockengine.compiler.ir.inline import inline
from pockengine.compiler.ir.state_blocks import STATE_BLOCK
from pockengine.compiler.ops.blockwise_update import coded_places
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.ops.update import updated_type
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

SPACE, _ = space_of([STATE_BLOCK], [(1,)])
"""A block as an iteration space: one row."""


@dataclass(frozen=True)
class Scratch:
    """Scratch per thread: floats of the states, and of the param if it is copied."""

    states: int
    copied: bool

    @property
    def bytes(self) -> int:
        """Bytes per thread."""
        return 4 * STATE_BLOCK * (self.states + self.copied)


def choose_blockwise(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Allocate each thread's scratch for a block."""
    size = device.cpu.cores * _scratch(node).bytes
    return plain_choice(node, device, "BLOCKS", scratch_bytes=size)


def emit_blockwise(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit a blockwise_update."""
    names = [f"x{place}" for place in range(len(node.operands))]
    parameters = _parameters(node, names)
    lanes = lanes_for(STATE_BLOCK, machine_of(device).lanes)
    macros = {**space_macros(SPACE, lanes), **_part_macros(node)}
    inside = _inside(node, parameters)
    prelude = [
        f"/* {node.op} of {node.operands[0].type} */",
        '#include "pe_states.h"',
        *defines(macros.items()),
        *([index_table(node.attrs["index"])] if node.attrs["index"] else []),
        io_struct(inside),
        tile_function(_tile(node), SPACE, "tile"),
        '#include "kernels/update_blocks.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{'x'.join(map(str, node.operands[1].shape))}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=_body(node),
        prelude=joined("\n", prelude),
        scratch_bytes=choice.scratch_bytes,
    )


BLOCKWISE = KernelFamily(choose_blockwise, emit_blockwise)


def _parameters(node: Node, names: Sequence[str]) -> list[Parameter]:
    written = written_operands(node)
    return [
        (write if place in written else read)(name, value)
        for place, (name, value) in enumerate(zip(names, node.operands, strict=True))
    ]


def _inside(node: Node, parameters: Sequence[Parameter]) -> list[Parameter]:
    """Operands and results of the formula, with states as floats."""
    places = coded_places(node.attrs)
    return [
        Parameter("float", parameter.name, written=True) if place in places else parameter
        for place, parameter in enumerate(parameters)
    ]


def _tile(node: Node) -> Body:
    """Return the formula over the pointers of a block."""
    formula: Graph = node.attrs["body"]
    graph = Graph(node.op)
    g = Builder(graph)
    current = [g.input(f"x{place}", value.type) for place, value in enumerate(formula.inputs)]
    results = inline(g, formula, current)
    accesses = [Access(value.name, value, _walk(value)) for value in current]
    writes = node.attrs["writes"][: len(results)]
    stores = [(value, accesses[place]) for place, value in zip(writes, results, strict=True)]
    by_value = dict(zip(current, accesses, strict=True))
    return Body(by_value, graph.nodes, graph.constants, stores)


def _walk(value: Value) -> tuple[int, ...]:
    return (*(0 for _ in (*SPACE.outer, *SPACE.row_sizes)), int(bool(value.shape)))


def _body(node: Node) -> list[Code]:
    """Return the kernel's lines: for each block decode, compute, encode."""
    scratch, size = _scratch(node), node.operands[1].type.size
    return [
        f"float *const own = (float *)scratch + (ptrdiff_t)w->index * {scratch.bytes // 4};",
        f"const pe_range share = pe_split(w, {-(-size // STATE_BLOCK)}, 1);",
        "for (ptrdiff_t block = share.begin; block < share.end; block++) {",
        "    const ptrdiff_t first = block * PE_STATE_BLOCK;",
        f"    const ptrdiff_t left = {size} - first;",
        "    const int count = left < PE_STATE_BLOCK ? (int)left : PE_STATE_BLOCK;",
        *indented(_block(node, scratch)),
        "}",
    ]


def _block(node: Node, scratch: Scratch) -> list[Code]:
    """Return the lines of one block."""
    places = coded_places(node.attrs)
    count = len(node.operands) - len(places)
    at = {place: f"own + {STATE_BLOCK * index}" for index, place in enumerate(places)}
    copied = f"({_target(node)} *)(void *)(own + {STATE_BLOCK * scratch.states})"
    passed = [f".x0 = {copied if scratch.copied else f'x0 + {_start(node)} + first'}"]
    for place, value in enumerate(node.operands[1:], start=1):
        whole = f"x{place} + first" if value.shape and place < count else f"x{place}"
        passed.append(f".x{place} = {at.get(place, whole)}")
    before, after = [], []
    for scales, (place, signed) in enumerate(places.items(), start=count):
        states = f"pe_states_{'signed' if signed else 'unsigned'}"
        states_of_block = f"x{place} + first, x{scales}[block], {states}"
        before.append(f"pe_decode_states({at[place]}, {states_of_block}, count);")
        states_of_block = f"x{place} + first, x{scales} + block, {at[place]}, {states}"
        after.append(f"pe_encode_states({states_of_block}, {int(signed)}, count);")
    return [
        fill("const {}_io io = {{{}{}}};", SYMBOL, ", ".join(passed), VALUES),
        *before,
        *([f"{SYMBOL}_gather(io.x0, x0, first, count);"] if scratch.copied else []),
        f"{SYMBOL}_block(&io, count);",
        *([f"{SYMBOL}_scatter(x0, io.x0, first, count);"] if scratch.copied else []),
        *after,
    ]


def _scratch(node: Node) -> Scratch:
    return Scratch(len(coded_places(node.attrs)), not _in_one_piece(node))


def _target(node: Node) -> str:
    return read("x0", node.operands[0]).ctype


def _in_one_piece(node: Node) -> bool:
    """Whether the written part of the param is contiguous."""
    axis = node.attrs["axis"]
    if axis is None:
        return True
    index = node.attrs["index"]
    return math.prod(node.operands[0].shape[:axis]) == 1 and (index is None or len(index) == 1)


def _start(node: Node) -> int:
    """Offset of a contiguous part in the param."""
    axis = node.attrs["axis"]
    if axis is None:
        return 0
    first = node.attrs["index"][0] if node.attrs["index"] else node.attrs["start"]
    return int(first) * math.prod(node.operands[0].shape[axis + 1 :])


def _part_macros(node: Node) -> dict[str, object]:
    """Template parameters of a part that is not contiguous."""
    if _in_one_piece(node):
        return {}
    axis, shape = node.attrs["axis"], node.operands[0].shape
    return {
        "PE_PART(k)": f"{TABLE}[k]" if node.attrs["index"] else f"({node.attrs['start']} + (k))",
        "PE_K": updated_type(node.operands[0].type, node.attrs).shape[axis],
        "PE_CHANNELS": shape[axis],
        "PE_LINE": math.prod(shape[axis + 1 :]),
        "PE_TARGET": _target(node),
    }
