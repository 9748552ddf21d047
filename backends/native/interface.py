"""The C interface of a program: its symbol, its header, and the runner's `main`."""

import re
from collections.abc import Iterable, Iterator

from pockengine.backends.placement import entry_inputs, entry_outputs, lay_out
from pockengine.compiler.program import Program

_NOT_C = re.compile(r"[^A-Za-z0-9_]")

IDENTIFIER_LETTERS = 60
"""Longer names are cut."""


def identifier(name: str) -> str:
    """Convert a program's name to a C identifier and file name."""
    return _NOT_C.sub("_", name)[:IDENTIFIER_LETTERS] or "_"


def program_symbol(name: str) -> str:
    """Return the symbol of a program's pe_program."""
    return f"pe_program_{identifier(name)}"


def header_name(name: str) -> str:
    """Return the file name of a program's header, distinct from the runtime's."""
    return f"{program_symbol(name)}.h"


def main_text(program: Program) -> str:
    """Return the runner's own C file; the rest of the runner is in the runtime."""
    symbol = program_symbol(program.name)
    return (
        '#include "pe_runner.h"\n\n'
        f"extern const pe_program {symbol};\n\n"
        "int main(int count, char **arguments) {\n"
        f"    return pe_runner(&{symbol}, count, arguments);\n"
        "}\n"
    )


def header_text(program: Program) -> str:
    """Return the header of a program: its symbol, memory sizes, and tensor indices."""
    name = identifier(program.name)
    prefix = f"PE_{name.upper()}"
    layout = lay_out(program)
    lines = [
        f"/* Program {name}: what pe.h needs to run it. */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        '#include "pe.h"',
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"extern PE_API const pe_program {program_symbol(program.name)};",
        "",
        "/* Bytes of the memory that pe_init takes, aligned to PE_ALIGN. */",
        f"#define {prefix}_PARAMS_BYTES ((size_t){layout.params_bytes})",
        f"#define {prefix}_ARENA_BYTES ((size_t){program.arena_bytes})",
        *_places(program, prefix),
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _places(program: Program, prefix: str) -> Iterator[str]:
    """Yield enumerations of the inputs and outputs of each entry."""
    taken: set[str] = set()
    for entry_name, entry in program.entries.items():
        for kind, tensors in (("INPUT", entry_inputs(entry)), ("OUTPUT", entry_outputs(entry))):
            names = [name for name, _ in tensors]
            stem = f"{prefix}_{identifier(entry_name).upper()}_{kind}"
            rows = list(_enumerators(stem, [*names, "COUNT"], taken))
            yield ""
            yield f"/* Places in the {kind.lower()}s of an entry. */"
            yield f"enum {{ {', '.join(rows)} }};"


def _enumerators(stem: str, names: Iterable[str], taken: set[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        row = f"{stem}_{identifier(name).upper()}"
        while row in taken:
            row = f"{row}_{place}"
        taken.add(row)
        yield f"{row} = {place}"
