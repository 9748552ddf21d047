"""The numbers of a program as C arrays in flash, for devices without files.

Frozen params are read in place. The others are copied to RAM when a session starts; a tail of
zeros, such as optimizer states, takes no flash.
"""

from pockengine.backends.native.interface import identifier
from pockengine.backends.placement import Layout
from pockengine.backends.weights import check_known
from pockengine.compiler.program import Program

FLASH_FILE = "weights.c"
"""Name of the file, beside program.c."""

SESSION_BYTES = 2944
"""Maximum size of a pe_session with 32-bit pointers; the C file asserts it."""

_ASSERTION = (
    f"_Static_assert(sizeof(void *) > 4 || sizeof(pe_session) <= {SESSION_BYTES}, "
    '"a session is larger than planned");\n'
)

_IN_A_LINE = 24


def images(layout: Layout) -> tuple[bytes, bytes]:
    """Return the bytes of frozen params, and of the others without trailing zeros.

    CompileError for a param without numbers.
    """
    check_known(layout.in_file)
    frozen, params = bytearray(layout.frozen_bytes), bytearray(layout.params_bytes)
    for slot in layout.slots:
        memory = frozen if slot.is_frozen else params
        begin = slot.place.offset
        memory[begin : begin + slot.type.nbytes] = slot.contents.read().tobytes()
    return bytes(frozen), bytes(params).rstrip(b"\0")


def flash_text(program: Program, layout: Layout) -> str:
    """Return the C file of both arrays."""
    arrays = [
        f"const unsigned char {name}[{len(data)}] __attribute__((aligned(PE_ALIGN))) = {{\n"
        f"{_rows(data)}\n}};\n"
        for name, data in _arrays(program, layout).values()
        if data
    ]
    head = ['#include "pe.h"\n', _ASSERTION, *_declarations(program, layout), ""]
    return "\n".join([*head, *arrays])


def flash_fields(program: Program, layout: Layout) -> tuple[str, dict[str, object]]:
    """Return declarations of the arrays, and the fields of pe_program that name them."""
    arrays = _arrays(program, layout)
    fields: dict[str, object] = {key: name for key, (name, data) in arrays.items() if data}
    fields["initial_bytes"] = len(arrays["initial"][1])
    return "\n".join(_declarations(program, layout)) + "\n", fields


def _arrays(program: Program, layout: Layout) -> dict[str, tuple[str, bytes]]:
    """Return name and bytes of each array by its field of pe_program."""
    name, (frozen, initial) = identifier(program.name), images(layout)
    return {
        "frozen": (f"pe_frozen_{name}", frozen),
        "initial": (f"pe_initial_{name}", initial),
    }


def _declarations(program: Program, layout: Layout) -> list[str]:
    arrays = _arrays(program, layout).values()
    return [f"extern const unsigned char {name}[{len(data)}];" for name, data in arrays if data]


def _rows(data: bytes) -> str:
    lines = (data[begin : begin + _IN_A_LINE] for begin in range(0, len(data), _IN_A_LINE))
    return "\n".join(f"    {', '.join(map(str, line))}," for line in lines)
