"""A planned Program as C files: tables of params and entries, a function for each entry, kernels.

    program.c              tables, and one function an entry that calls its kernels in order
    kernels_0.c ... 7.c    the kernels, each once, sharded by their symbols' hashes, so that shards
                           compile in parallel and one new kernel recompiles one shard only

The text depends on the program alone: same program, same bytes. Names come from a model file, which
is data: they stand in string literals (`c_string`) and, of few characters, in comments (`comment`).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.barriers import Span, Touched, needs_barrier
from pockengine.backends.c.expression import scalar
from pockengine.backends.c.kernel import C_TYPES, Kernel, align
from pockengine.backends.c.limits import check_limits, static_assertion
from pockengine.backends.c.specification import Specification
from pockengine.compiler.index_ranges import IndexRange, index_ranges
from pockengine.compiler.ir import Node, TensorType, Value
from pockengine.compiler.ir.types import DType
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry, Program
from pockengine.errors import CompileError

SHARDS = 8

COMMENT_LETTERS = 1000
"""Longer comments are cut: a name may be a megabyte."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_.,:;/@+=()\[\] -]")
_UNCOMMENTED = re.compile(r"[^A-Za-z0-9_.,:;/@+=()\[\] -]")
"""All other characters are escaped in a C string, and left out of a comment."""

NAME_BYTES = 511
"""Longest name of a tensor in UTF-8: PE_ST_NAME_BYTES of pe_safetensors.h, with its end."""

MAX_RANK = 8
"""PE_MAX_RANK of pe.h: dimensions of a param, input or output."""

_DTYPES = {DType.F32: "PE_F32", DType.I32: "PE_I32", DType.I64: "PE_I64", DType.BOOL: "PE_BOOL"}

_KERNEL_HEADER = """#include <string.h>

#include "pe_worker.h"
#include "pe_math.h"
"""

_PROGRAM_HEADER = """#include "pe.h"

#define PARAM(at) ((void *)(params + (at)))
#define ARENA(at) ((void *)(arena + (at)))

#ifdef PE_PROFILE
#include "pe_profile.h"
#define KERNEL(index, call) (pe_profile_begin(w), call, pe_profile_end(w, index))
#define REPORT pe_profile_report
#else
#define KERNEL(index, call) call
#define REPORT NULL
#endif
"""


@dataclass(frozen=True)
class Slot:
    """One tensor of the param memory: a weight, a state or a constant, with its first contents."""

    name: str
    offset: int
    data: np.ndarray
    type: TensorType


def param_slots(program: Program) -> tuple[list[Slot], int]:
    """Where every param and constant lives, in order, and the bytes of them all."""
    arrays = {name: param.data for name, param in program.params.items()}
    arrays |= program.constants
    slots, offset = [], 0
    for name, data in arrays.items():
        type_ = TensorType(DType.of(data), tuple(data.shape))
        slots.append(Slot(name, offset, data, type_))
        offset += align(type_.nbytes)
    return slots, offset


def generate(program: Program, backend: CBackend) -> dict[str, str]:
    """The C files of a program by name."""
    slots, params_bytes = param_slots(program)
    _check_names(program)
    check_limits(program, params_bytes, backend.device)
    offsets = {slot.name: slot.offset for slot in slots}
    kernels: dict[str, Kernel] = {}
    functions = []
    first = 0
    for number, entry in enumerate(program.entries.values()):
        nodes = kernel_nodes(entry)
        kernels |= {backend.kernel(node).symbol: backend.kernel(node) for node in nodes}
        functions.append(_entry_function(number, entry, backend, offsets, first))
        first += len(nodes)
    files = {f"kernels_{shard}.c": _KERNEL_HEADER for shard in range(SHARDS)}
    for symbol in sorted(kernels):
        shard = int(symbol.rpartition("_")[2], 16) % SHARDS
        files[f"kernels_{shard}.c"] += f"\n{kernels[symbol].source}"
    declarations = "\n".join(f"{kernels[symbol].declaration};" for symbol in sorted(kernels))
    parts = [
        comment(f"Program {program.name}. Generated: change the model, not this file."),
        f"#define PE_KERNELS {first}\n",
        _PROGRAM_HEADER,
        static_assertion(program, params_bytes),
        declarations,
        *functions,
        _tables(program, backend.device.cpu.cores),
    ]
    files["program.c"] = "\n".join(parts)
    return files


def _check_names(program: Program) -> None:
    """Raise CompileError for a name that the runtime or a safetensors file could not hold."""
    tensors = [slot.name for slot in param_slots(program)[0]]
    for entry in program.entries.values():
        tensors += [name for name, _ in (*entry_inputs(entry), *entry_outputs(entry))]
    for name in (program.name, *program.entries, *tensors):
        try:
            size = len(name.encode())
        except UnicodeEncodeError as error:
            raise CompileError(f"the name {name!r} is not Unicode text; rename it") from error
        if "\0" in name or size > NAME_BYTES:
            fact = "holds a NUL" if "\0" in name else f"has {size} bytes, more than {NAME_BYTES}"
            raise CompileError(f"the name {name[:60]!r} {fact}; rename it")
    if "__metadata__" in tensors:
        raise CompileError("the name __metadata__ is safetensors' own; rename the tensor")


def kernel_nodes(entry: Entry) -> list[Node]:
    """The nodes of an entry that have a kernel, in order."""
    return [node for node in entry.graph.nodes if not is_alias(node, entry)]


def _entry_function(
    number: int, entry: Entry, backend: CBackend, offsets: Mapping[str, int], first: int
) -> str:
    lines = [
        comment(entry.name),
        f"static void run_{number}(pe_worker *w, unsigned char *params, unsigned char *arena) {{",
        "    (void)w, (void)params, (void)arena;",
    ]
    nodes = kernel_nodes(entry)
    barriers = needs_barrier([touched(node, entry, offsets) for node in nodes])
    for index, (node, barrier) in enumerate(zip(nodes, barriers, strict=True), start=first):
        places = [place(value, entry, offsets) for value in (*node.operands, *node.results)]
        scratch = entry.plan.scratch.get(node)
        places.append("NULL" if scratch is None else f"ARENA({scratch.offset})")
        if barrier:
            lines.append("    pe_barrier(w);")
        lines.append(f"    {comment(describe(node))}")
        lines.append(f"    KERNEL({index}, {backend.kernel(node).symbol}(w, {', '.join(places)}));")
    return "\n".join([*lines, "}\n"])


def touched(node: Node, entry: Entry, offsets: Mapping[str, int]) -> Touched:
    """The memory that a node's kernel reads and writes."""
    written = {node.operands[index] for index in written_operands(node)}
    reads = [span for v in node.operands for span in _span(v, entry, offsets)]
    writes = [span for v in (*node.results, *written) for span in _span(v, entry, offsets)]
    scratch = entry.plan.scratch.get(node)
    if scratch is not None:
        writes.append(Span("arena", scratch.offset, scratch.offset + scratch.size))
    return Touched(reads, writes)


def _span(value: Value, entry: Entry, offsets: Mapping[str, int]) -> list[Span]:
    """Where a value lives; scalars that are written into the call live nowhere."""
    value = entry.plan.aliases.get(value, value)
    allocation = entry.plan.values.get(value)
    if allocation is not None:
        return [Span("arena", allocation.offset, allocation.offset + value.type.nbytes)]
    if value.name in offsets:
        offset = offsets[value.name]
        return [Span("params", offset, offset + value.type.nbytes)]
    return []


def is_alias(node: Node, entry: Entry) -> bool:
    """Whether a reshape needs no kernel, because its result is where its operand is."""
    if node.op != "reshape":
        return False
    (operand,), result = node.operands, node.result
    if result in entry.plan.aliases:
        return True
    mine, other = entry.plan.values.get(result), entry.plan.values.get(operand)
    return mine is not None and other is not None and mine.offset == other.offset


def place(value: Value, entry: Entry, offsets: Mapping[str, int]) -> str:
    """The C expression of a value's address."""
    value = entry.plan.aliases.get(value, value)
    allocation = entry.plan.values.get(value)
    if allocation is not None:
        return f"ARENA({allocation.offset})"
    if value.name in offsets:
        return f"PARAM({offsets[value.name]})"
    data = entry.graph.constants.get(value)
    if data is None or data.ndim:
        raise CompileError(f"{value!r} of entry {entry.name} has no place in memory")
    number = data.item()
    text = scalar(number) if isinstance(number, float) else str(int(number))
    return f"(const {C_TYPES[value.dtype]}[]){{({C_TYPES[value.dtype]}){text}}}"


def describe(node: Node) -> str:
    """What a kernel call computes, with the user's names and shapes."""
    op = node.op
    if op == "fusion":
        op = "+".join(inner.op for inner in node.attrs["body"].nodes)
    results = ", ".join(f"{value.name} {value.type}" for value in node.results)
    operands = ", ".join(f"{value.name} {value.type}" for value in node.operands)
    scope = f" in {node.scope}" if node.scope else ""
    return f"{results + ' = ' if results else ''}{op}({operands}){scope}"


def comment(text: str) -> str:
    """A C comment of any text.

    Characters that could end a comment, join lines or begin a trigraph are not among those kept.
    """
    shown = _UNCOMMENTED.sub("_", text[:COMMENT_LETTERS])
    return f"/* {shown}{'...' if len(text) > COMMENT_LETTERS else ''} */"


def entry_inputs(entry: Entry) -> list[tuple[str, Value]]:
    """Named inputs of an entry, in its graph's order."""
    return [(value.name, value) for value in entry.graph.inputs]


def entry_outputs(entry: Entry) -> list[tuple[str, Value]]:
    """Named outputs of an entry; CompileError for one that lives outside of the arena."""
    outputs = list(entry.graph.outputs.items())
    for name, value in outputs:
        if value not in entry.plan.values:
            raise CompileError(
                f"output {name} of entry {entry.name} is a param or constant; return a copy of it"
            )
    return outputs


def specification(program: Program, threads: int) -> Specification:
    """Return what the library and the manifest must agree on, for `threads` threads at most."""
    slots, params_bytes = param_slots(program)
    entries = {
        name: (_types(entry_inputs(entry)), _types(entry_outputs(entry)))
        for name, entry in program.entries.items()
    }
    params = {slot.name: slot.type for slot in slots}
    sizes = (params_bytes, program.arena_bytes, threads, program.micro_batches)
    return Specification(entries, params, *sizes)


def _types(values: list[tuple[str, Value]]) -> dict[str, TensorType]:
    return {name: value.type for name, value in values}


def _tables(program: Program, threads: int) -> str:
    slots, params_bytes = param_slots(program)
    table = [(slot.name, slot.type, slot.offset) for slot in slots]
    parts = [_tensor_table("params", table, _finite_params(program))]
    rows = []
    for number, entry in enumerate(program.entries.values()):
        inputs, outputs = entry_inputs(entry), entry_outputs(entry)
        parts.append(_arena_table(f"inputs_{number}", inputs, entry))
        parts.append(_arena_table(f"outputs_{number}", outputs, entry))
        ranges = index_ranges(entry.graph)
        parts.append(_range_table(f"ranges_{number}", ranges, [key for key, _ in inputs]))
        rows.append(
            f"    {{{c_string(entry.name)}, inputs_{number}, outputs_{number}, ranges_{number}, "
            f"{len(inputs)}, {len(outputs)}, {len(ranges)}, run_{number}}},"
        )
    parts.append("static const pe_entry entries[] = {\n" + "\n".join(rows) + "\n};\n")
    fields = {
        "name": c_string(program.name),
        "specification": c_string(specification(program, threads).digest()),
        "params": "params",
        "entries": "entries",
        "param_count": len(slots),
        "entry_count": len(program.entries),
        "max_threads": threads,
        "micro_batches": program.micro_batches,
        "params_bytes": params_bytes,
        "arena_bytes": program.arena_bytes,
        "report": "REPORT",
    }
    lines = "\n".join(f"    .{name} = {value}," for name, value in fields.items())
    parts.append(f"const pe_program pe_model = {{\n{lines}\n}};\n")
    return "\n".join(parts)


def _arena_table(name: str, values: list[tuple[str, Value]], entry: Entry) -> str:
    plan = entry.plan.values
    return _tensor_table(name, [(key, value.type, plan[value].offset) for key, value in values])


def _finite_params(program: Program) -> frozenset[str]:
    """Return the params that training writes and that begin as finite numbers."""
    nodes = (node for entry in program.entries.values() for node in entry.graph.nodes)
    written = {node.operands[index].name for node in nodes for index in written_operands(node)}
    arrays = {name: program.params[name].data for name in written & set(program.params)}
    return frozenset(
        name for name, data in arrays.items() if DType.of(data).is_float and np.isfinite(data).all()
    )


def _range_table(name: str, ranges: list[IndexRange], inputs: list[str]) -> str:
    rows = [
        f"    {{{inputs.index(r.input)}, {r.low}, {r.high}, {r.also}, {r.start}, {r.rows}, "
        f"{r.row_stride}, {r.count}, {r.stride}}},\n"
        for r in ranges
    ]
    empty = "    {0, 0, 0, 0, 0, 0, 0, 0, 0},\n"  # C has no empty arrays
    return f"static const pe_index_range {name}[] = {{\n{''.join(rows) or empty}}};\n"


def _tensor_table(
    name: str, tensors: list[tuple[str, TensorType, int]], finite: Collection[str] = ()
) -> str:
    rows = "\n".join(f"    {row}" for row in _tensor_rows(tensors, finite))
    return f"static const pe_tensor {name}[] = {{\n{rows}\n}};\n"


def _tensor_rows(
    tensors: list[tuple[str, TensorType, int]], finite: Collection[str]
) -> Iterator[str]:
    if not tensors:  # C has no empty arrays
        yield '{"", PE_F32, 0, {0}, 0, false},'
    for name, type_, offset in tensors:
        if type_.rank > MAX_RANK:
            raise CompileError(f"{name} has {type_.rank} dimensions; the runtime takes {MAX_RANK}")
        shape = ", ".join(map(str, type_.shape)) or "0"
        place = f"{_DTYPES[type_.dtype]}, {type_.rank}, {{{shape}}}, {offset}"
        yield f"{{{c_string(name)}, {place}, {'true' if name in finite else 'false'}}},"


def c_string(text: str) -> str:
    """A C string literal of any text in UTF-8; all but plain letters are written as octals."""
    body = _ESCAPED.sub(lambda match: b"\\%03o" % match[0][0], text.encode())
    return f'"{body.decode()}"'


def unique_kernels(program: Program, backend: CBackend) -> int:
    """How many different kernels a program has."""
    symbols = {
        backend.kernel(node).symbol
        for entry in program.entries.values()
        for node in kernel_nodes(entry)
    }
    return len(symbols)
