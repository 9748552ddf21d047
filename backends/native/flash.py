"""The numbers of a program as C arrays, for devices without files: they lie in flash with its code.

What is frozen is read where it is. The other params are copied from there when a session begins; a
tail of zeros, as optimiser states are, takes no flash.
"""

from pockengine.backends.native.interface import identifier
from pockengine.backends.placement import Layout
from pockengine.backends.weights import check_known
from pockengine.compiler.program import Program

FLASH_FILE = "weights.c"
"""Beside program.c."""

SESSION_BYTES = 2944
"""Most that a pe_session takes where pointers have 32 bits; the C file asserts it."""

_ASSERTION = (
    f"_Static_assert(sizeof(void *) > 4 || sizeof(pe_session) <= {SESSION_BYTES}, "
    '"a session is larger than planned");\n'
)

_IN_A_LINE = 24


def images(layout: Layout) -> tuple[bytes, bytes]:
    """Return the memory of frozen params, and of the others up to the last that is not zero.

    CompileError names one that has no numbers.
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
