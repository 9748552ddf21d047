"""Flash and memory use of a program on a device without files.

Objects are read as ELF files of either word size. A firmware additionally has its own code,
functions of its compiler's library, and its stack.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.native.flash import SESSION_BYTES, images
from pockengine.backends.placement import lay_out
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device
from pockengine.errors import BuildError, CompileError

_WRITE, _ALLOC, _CODE, _NOBITS = 1, 2, 4, 8
_WIDE = 2
"""ELF class of 64-bit files."""


@dataclass(frozen=True)
class Share:
    """A use of one of the device's memories."""

    memory: str
    name: str
    size: int


def shares(program: Program, objects: Iterable[Path]) -> list[Share]:
    """Return the memory use of a program's objects, params and arena."""
    layout = lay_out(program)
    code = tables = data = 0
    for path in objects:
        for kind, flags, size in _sections(path):
            if flags & _CODE:
                code += size
            elif flags & _WRITE:
                data += size
            elif kind != _NOBITS:
                tables += size
    frozen, initial = images(layout)
    return [
        Share("flash", "code", code),
        Share("flash", "frozen weights", len(frozen)),
        Share("flash", "first values of what is trained", len(initial)),
        Share("flash", "tables", tables - len(frozen) - len(initial)),
        Share("memory", "weights and states that training writes", layout.params_bytes),
        Share("memory", "arena", program.arena_bytes),
        Share("memory", "session", SESSION_BYTES),
        Share("memory", "variables", data),
    ]


def sections_table(taken: Sequence[Share], device: Device) -> str:
    """Return the memory uses as text lines; CompileError, listing them, if a memory is too
    small.
    """
    sizes = {"flash": device.flash_bytes, "memory": device.memory_bytes}
    lines, missing = [], []
    for memory, size in sizes.items():
        parts = [share for share in taken if share.memory == memory]
        total = sum(share.size for share in parts)
        lines.append(f"{memory}: {total:,} of {size:,} bytes")
        lines += [f"  {share.size:>12,}  {share.name}" for share in parts]
        if total > size:
            missing.append(f"{total - size:,} bytes of {memory}")
    text = "\n".join(lines) + "\n"
    if missing:
        raise CompileError(
            f"{device.name} lacks {' and '.join(missing)}; use a smaller model or batch, train "
            f"less, or give a memory_budget\n{text}"
        )
    return text


def linked_bytes(path: Path) -> tuple[int, int]:
    """Return the flash and memory bytes of a linked ELF file."""
    sections = list(_sections(path))
    flash = sum(size for kind, _, size in sections if kind != _NOBITS)
    return flash, sum(size for _, flags, size in sections if flags & _WRITE)


def _sections(path: Path) -> Iterable[tuple[int, int, int]]:
    """Yield type, flags and bytes of each loaded section of an ELF file.

    BuildError for another file.
    """
    data = path.read_bytes()
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise BuildError(f"{path.name} is no ELF file of a little-endian machine")
    wide = data[4] == _WIDE
    (start,) = struct.unpack_from("<Q" if wide else "<I", data, 0x28 if wide else 0x20)
    step, count = struct.unpack_from("<HH", data, 0x3A if wide else 0x2E)
    for index in range(count):
        header = struct.unpack_from("<IIQQQQ" if wide else "<IIIIII", data, start + index * step)
        if header[2] & _ALLOC:
            yield header[1], header[2], header[5]
