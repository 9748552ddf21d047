"""A planned Program as C files: tables of params and entries, a function for each entry, kernels.

    program.c              tables, and one function per entry, which calls its kernels in order
    weights.c              for a device without files: the contents of params
    kernels_0.c ... 7.c    the kernels, each once, sharded by symbol hash, so that shards
                           compile in parallel and one new kernel recompiles one shard only

The text depends on the program only: same program, same bytes. Names come from an untrusted model
file: they occur only in string literals (`c_string`) and, with restricted characters, in comments
(`comment`).
"""

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from pockengine.backends.barriers import needs_barrier
from pockengine.backends.native.address import address, place
from pockengine.backends.native.expression import scalar
from pockengine.backends.native.flash import FLASH_FILE, flash_fields, flash_text
from pockengine.backends.native.interface import header_name, header_text, main_text, program_symbol
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.limits import check_limits, static_assertion
from pockengine.backends.native.param_marks import ParamMarks, input_marks, param_marks
from pockengine.backends.native.preparation import PREPARE, prepare_function
from pockengine.backends.native.sharing import Call, apart, share
from pockengine.backends.placement import (
    MAX_RANK,
    Layout,
    describe,
    entry_inputs,
    entry_outputs,
    form_of,
    kernel_nodes,
    lay_out,
    touched,
)
from pockengine.backends.specification import specification_of
from pockengine.compiler.index_ranges import IndexRange, index_ranges
from pockengine.compiler.ir import Node, TensorType, Value
from pockengine.compiler.ops.registry import written_operands
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.target import UNCHOSEN, Choice
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

SHARDS = 8

COMMENT_LETTERS = 1000
"""Longer comments are truncated: a name may be a megabyte."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_.,:;/@+=()\[\] -]")
_UNCOMMENTED = re.compile(r"[^A-Za-z0-9_.,:;/@+=()\[\] -]")
"""Other characters are escaped in a C string, and omitted from a comment."""

NAME_BYTES = 511
"""Maximum bytes of a tensor's name in UTF-8: PE_ST_NAME_BYTES of pe_safetensors.h, minus the
terminator.
"""

KERNEL_HEADER = """#include <string.h>

#include "pe_worker.h"
#include "pe_math.h"
"""

_PROGRAM_HEADER = r"""#include "pe.h"
#include "pe_worker.h"

#define PARAM(at) ((void *)(params + (at)))
#define FROZEN(at) ((const void *)(frozen + (at)))
#define ARENA(at) ((void *)(arena + (at)))

#ifdef PE_PROFILE
#include "pe_profile.h"
#define KERNEL(index, call) (pe_profile_begin(w), call, pe_profile_end(w, index))
#define REPORT pe_profile_report
#else
#define KERNEL(index, call) call
#define REPORT NULL
#endif

#define UPDATE(index, call)                                                                        \
    do {                                                                                           \
        const unsigned before = pe_flush_begin();                                                  \
        KERNEL(index, call);                                                                       \
        pe_flush_end(before);                                                                      \
    } while (0)
"""


class KernelWriter(Protocol):
    """Emits the kernels of a program: `header` is the common prelude."""

    @property
    def header(self) -> str:
        """The first lines of each file of kernels."""

    @property
    def device(self) -> Device:
        """The device to generate code for."""

    def kernel(self, node: Node, choice: Choice | None = None) -> Kernel:
        """Emit the kernel of a node, as chosen."""


def generate(program: Program, backend: KernelWriter) -> dict[str, str]:
    """The C files of a program by name."""
    layout = checked_layout(program, backend.device)
    calls = program_calls(program, backend)
    tables = _number_tables(calls)
    begins = {symbol: _call_begin(call, tables) for symbol, call in calls.items()}
    kernels = {call.kernel.symbol: call.kernel for call in calls.values()}
    functions = []
    first = 0
    for number, entry in enumerate(program.entries.values()):
        functions.append(
            _entry_function(number, entry, backend, layout=layout, first=first, begins=begins)
        )
        first += len(kernel_nodes(entry))
    files = {f"kernels_{shard}.c": backend.header for shard in range(SHARDS)}
    for symbol in sorted(kernels):
        shard = int(symbol.rpartition("_")[2], 16) % SHARDS
        # Weak: programs in one process that share a kernel may both define it.
        files[f"kernels_{shard}.c"] += f"\n#pragma weak {symbol}\n{kernels[symbol].source}"
    declarations = "\n".join(f"{kernels[symbol].declaration};" for symbol in sorted(kernels))
    parts = [
        comment(f"Program {program.name}. Generated: change the model, not this file."),
        f"#define PE_KERNELS {first}\n",
        _PROGRAM_HEADER,
        static_assertion(program, layout),
        declarations,
        *(f"static const pe_number {name}[] = {{{row}}};" for row, name in tables.items()),
        *functions,
        *prepare_function(program, layout, backend),
        program_tables(program, layout, backend.device),
    ]
    files["program.c"] = "\n".join(parts)
    if backend.device.flash_bytes:
        files[FLASH_FILE] = flash_text(program, layout)
    return files | files_around(program, backend.device)


def program_calls(program: Program, backend: KernelWriter) -> dict[str, Call]:
    """Return the calls of all kernels by symbol; kernels share functions if code lies in flash."""
    kernels = []
    for entry in program.entries.values():
        emitted = [backend.kernel(node, entry.choices.get(node)) for node in kernel_nodes(entry)]
        made = [kernel.preparation for kernel in emitted if kernel.preparation]
        kernels += [*emitted, *made]
    return share(kernels) if backend.device.flash_bytes else apart(kernels)


def _number_tables(calls: Mapping[str, Call]) -> dict[str, str]:
    """Return names of number tables by C text; equal tables are shared."""
    rows = dict.fromkeys(_row(call) for call in calls.values() if call.numbers)
    return {row: f"numbers_{index}" for index, row in enumerate(rows)}


def _row(call: Call) -> str:
    return ", ".join(map(str, call.numbers))


def _call_begin(call: Call, tables: Mapping[str, str]) -> str:
    """Return a call in C up to its arguments for memory."""
    numbers = f", {tables[_row(call)]}" if call.numbers else ""
    return f"{call.kernel.symbol}(w{numbers}"


def checked_layout(program: Program, device: Device) -> Layout:
    """Return the layout of params; CompileError for names and sizes that the runtime cannot
    hold.
    """
    layout = lay_out(program)
    _check_names(program, layout)
    check_limits(program, layout, device)
    return layout


def files_around(program: Program, device: Device) -> dict[str, str]:
    """Return the files beside program.c: its header, and the runner's `main` if it has one."""
    files = {} if device.flash_bytes else {"main.c": main_text(program)}
    return files | {header_name(program.name): header_text(program)}


def _check_names(program: Program, layout: Layout) -> None:
    """Raise CompileError for a name that the runtime or a safetensors file cannot hold."""
    tensors = list(layout.places)
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


def _entry_function(
    number: int,
    entry: Entry,
    backend: KernelWriter,
    layout: Layout,
    first: int,
    begins: Mapping[str, str],
) -> str:
    params = layout.places
    lines = [
        comment(entry.name),
        f"static void run_{number}(pe_worker *w, unsigned char *params, "
        "const unsigned char *frozen,",
        "                  unsigned char *arena) {",
        "    (void)w, (void)params, (void)frozen, (void)arena;",
    ]
    nodes = kernel_nodes(entry)
    barriers = needs_barrier([touched(node, entry, params) for node in nodes])
    for index, (node, barrier) in enumerate(zip(nodes, barriers, strict=True), start=first):
        choice = entry.choices.get(node, UNCHOSEN)
        kernel = backend.kernel(node, choice)
        places = [place(value, entry, params) for value in (*node.operands, *node.results)]
        form = form_of(node, choice, entry)
        places += [] if form is None else [address(layout.prepared[form])]
        places.append(_scratch(node, kernel, entry))
        if barrier:
            lines.append("    pe_barrier(w);")
        lines.append(f"    {comment(describe(node))}")
        macro = "UPDATE" if written_operands(node) else "KERNEL"
        lines.append(f"    {macro}({index}, {begins[kernel.symbol]}, {', '.join(places)}));")
    return "\n".join([*lines, "}\n"])


def _scratch(node: Node, kernel: Kernel, entry: Entry) -> str:
    """The C expression of a kernel's scratch; CompileError if less was planned than it needs."""
    planned = entry.plan.scratch.get(node)
    size = 0 if planned is None else planned.size
    if kernel.scratch_bytes > size:
        raise CompileError(
            f"{node} of entry {entry.name}: {kernel.symbol} needs {kernel.scratch_bytes} bytes of "
            f"scratch, and {size} were planned; compile for the target of this backend"
        )
    return "NULL" if planned is None else f"ARENA({planned.offset})"


def comment(text: str) -> str:
    """A C comment of any text.

    Characters that could end a comment, join lines or begin a trigraph are removed.
    """
    shown = _UNCOMMENTED.sub("_", text[:COMMENT_LETTERS])
    return f"/* {shown}{'...' if len(text) > COMMENT_LETTERS else ''} */"


def program_tables(
    program: Program, layout: Layout, device: Device, accelerator: str | None = None
) -> str:
    """Return the C tables of params and entries, and the pe_program.

    If a pe_accelerator is named, it runs the entries instead of C functions.
    """
    threads = device.cpu.cores
    table = _listed(program, layout, device)
    parts = [_tensor_table("params", table, param_marks(program))]
    parts += _entry_tables(program, accelerator)
    fields: dict[str, object] = {
        "abi": "PE_ABI",
        "name": c_string(program.name),
        "specification": c_string(specification_of(program, threads).digest()),
        "params": "params",
        "entries": "entries",
        "param_count": len(table),
        "entry_count": len(program.entries),
        "max_threads": threads,
        "micro_batches": program.micro_batches,
        "params_bytes": layout.params_bytes,
        "frozen_bytes": layout.frozen_bytes,
        "arena_bytes": program.arena_bytes,
        **({"prepare": PREPARE} if layout.prepared else {}),
        "report": "REPORT",
    }
    if accelerator:
        fields["accelerator"] = f"&{accelerator}"
    if device.flash_bytes:
        declarations, arrays = flash_fields(program, layout)
        parts.append(declarations)
        fields |= arrays
    if program.sizes is not None:
        parts.append(_size_table(program.sizes))
        fields["sizes"] = "&sizes"
    lines = "\n".join(f"    .{name} = {value}," for name, value in fields.items())
    symbol = program_symbol(program.name)
    declared = f"PE_API extern const pe_program {symbol};\n"
    return "\n".join([*parts, declared, f"const pe_program {symbol} = {{\n{lines}\n}};\n"])


def _listed(program: Program, layout: Layout, device: Device) -> list[tuple[str, TensorType, int]]:
    """Return the rows of the table of params; if it lies in flash, constants are omitted."""
    return [
        (slot.name, slot.type, slot.place.offset)
        for slot in layout.slots
        if not device.flash_bytes or slot.name in program.params
    ]


def _entry_tables(program: Program, accelerator: str | None) -> list[str]:
    """The C tables of inputs, outputs and ranges of each entry, and of the entries."""
    parts, rows = [], []
    for number, entry in enumerate(program.entries.values()):
        inputs, outputs = entry_inputs(entry), entry_outputs(entry)
        parts.append(_arena_table(f"inputs_{number}", inputs, entry, input_marks(inputs)))
        parts.append(_arena_table(f"outputs_{number}", outputs, entry))
        ranges = index_ranges(entry.graph)
        parts.append(_range_table(f"ranges_{number}", ranges, [key for key, _ in inputs]))
        rows.append(
            f"    {{{c_string(entry.name)}, inputs_{number}, outputs_{number}, ranges_{number}, "
            f"{len(inputs)}, {len(outputs)}, {len(ranges)}, "
            f"{'NULL' if accelerator else f'run_{number}'}}},"
        )
    parts.append("static const pe_entry entries[] = {\n" + "\n".join(rows) + "\n};\n")
    return parts


def _size_table(sizes: Range) -> str:
    """The C table of the variable size."""
    pads = {name: float(sizes.pad.get(name, 0)) for name in sizes.axes}
    axes = "".join(
        f"    {{{c_string(name)}, {axis}, {_double(pads[name])}}},\n"
        for name, axis in sizes.axes.items()
    )
    fields = (
        f"{c_string(sizes.name)}, {sizes.low}, {sizes.high}, buckets, axes, "
        f"{len(sizes.buckets)}, {len(sizes.axes)}"
    )
    return (
        f"static const int64_t buckets[] = {{{', '.join(map(str, sizes.buckets))}}};\n\n"
        f"static const pe_size_axis axes[] = {{\n{axes}}};\n\n"
        f"static const pe_size_range sizes = {{{fields}}};\n"
    )


def _double(number: float) -> str:
    """A C double literal: `scalar` would round to f32."""
    return repr(number) if math.isfinite(number) else scalar(number)


def _arena_table(
    name: str,
    values: list[tuple[str, Value]],
    entry: Entry,
    marks: Mapping[str, ParamMarks] = MappingProxyType({}),
) -> str:
    plan = entry.plan.values
    rows = [(key, value.type, plan[value].offset) for key, value in values]
    return _tensor_table(name, rows, marks)


def _range_table(name: str, ranges: list[IndexRange], inputs: list[str]) -> str:
    rows = [
        f"    {{{inputs.index(r.input)}, {r.low}, {r.high}, {r.also}, {r.start}, {r.rows}, "
        f"{r.row_stride}, {r.count}, {r.stride}}},\n"
        for r in ranges
    ]
    empty = "    {0, 0, 0, 0, 0, 0, 0, 0, 0},\n"  # C has no empty arrays
    return f"static const pe_index_range {name}[] = {{\n{''.join(rows) or empty}}};\n"


def _tensor_table(
    name: str,
    tensors: list[tuple[str, TensorType, int]],
    marks: Mapping[str, ParamMarks] = MappingProxyType({}),
) -> str:
    rows = "\n".join(f"    {row}" for row in _tensor_rows(tensors, marks))
    return f"static const pe_tensor {name}[] = {{\n{rows}\n}};\n"


def _tensor_rows(
    tensors: list[tuple[str, TensorType, int]], marks: Mapping[str, ParamMarks]
) -> Iterator[str]:
    if not tensors:  # C has no empty arrays
        yield f'{{"", PE_F32, 0, {{0}}, 0, {ParamMarks()}}},'
    for name, type_, offset in tensors:
        if type_.rank > MAX_RANK:
            raise CompileError(f"{name} has {type_.rank} dimensions; the runtime takes {MAX_RANK}")
        shape = ", ".join(map(str, type_.shape)) or "0"
        place = f"PE_{type_.dtype.stored_name}, {type_.rank}, {{{shape}}}, {offset}"
        yield f"{{{c_string(name)}, {place}, {marks.get(name, ParamMarks())}}},"


def c_string(text: str) -> str:
    """A C string literal of any text in UTF-8; everything but plain characters is octal."""
    body = _ESCAPED.sub(lambda match: b"\\%03o" % match[0][0], text.encode())
    return f'"{body.decode()}"'
