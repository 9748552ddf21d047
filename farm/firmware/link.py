"""Link a freestanding artifact with a start, a clock and files of the host: firmware to play."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.artifact import Artifact
from pockengine.backends.c.interface import header_name, identifier, program_symbol
from pockengine.backends.c.sections import linked_bytes
from pockengine.backends.c.toolchain import find_toolchain
from pockengine.devices import Device
from pockengine.errors import BuildError, FarmError

HERE = Path(__file__).parent

ORIGINS = {"mps2-an500": (0x00000000, 0x20000000)}
"""Where code and memory begin on the machines that QEMU plays."""

STACK_BYTES = 8192

_SCRIPT = """MEMORY {{
    FLASH (rx) : ORIGIN = {flash:#x}, LENGTH = {flash_bytes}
    RAM (rwx) : ORIGIN = {memory:#x}, LENGTH = {memory_bytes}
}}
ENTRY(_start)
SECTIONS {{
    .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) }} > FLASH
    .ARM.extab : {{ *(.ARM.extab*) }} > FLASH
    .ARM.exidx : {{ *(.ARM.exidx*) }} > FLASH
    .data : ALIGN(8) {{ data_begin = .; *(.data*) . = ALIGN(8); data_end = .; }} > RAM AT > FLASH
    data_in_flash = LOADADDR(.data);
    .bss (NOLOAD) : ALIGN(64) {{
        bss_begin = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .;
    }} > RAM
    .stack (NOLOAD) : ALIGN(8) {{ . = . + {stack}; stack_top = .; }} > RAM
    /DISCARD/ : {{ *(.comment) *(.ARM.attributes) *(.debug*) }}
}}
"""


@dataclass(frozen=True)
class Firmware:
    """An ELF file, and what it takes of the board's flash and memory, its stack included."""

    path: Path
    flash_bytes: int
    memory_bytes: int


def link_firmware(artifact: Artifact, device: Device, folder: Path) -> Firmware:
    """Return the firmware of an artifact for the machine that stands in for its device.

    BuildError where it exceeds the device's flash or memory: the linker says which section.
    """
    emulator = device.emulator
    if emulator is None or emulator.machine not in ORIGINS:
        raise FarmError(f"no firmware for {device.name}: known machines are {', '.join(ORIGINS)}")
    flash, memory = ORIGINS[emulator.machine]
    script, source, out = folder / "memory.ld", folder / "program.c", folder / "firmware"
    sizes = {"flash_bytes": device.flash_bytes, "memory_bytes": device.memory_bytes}
    script.write_text(_SCRIPT.format(flash=flash, memory=memory, stack=STACK_BYTES, **sizes))
    source.write_text(_program_text(artifact))
    toolchain = find_toolchain(device)
    archive = artifact.folder / "lib" / f"libpockengine-{identifier(artifact.name)}.a"
    command = [*toolchain.command, "-ffreestanding", "-O2", "-g0", "-std=gnu11"]
    command += [f"-I{artifact.folder / 'include'}", f"-I{HERE}", str(source)]
    command += [*(str(path) for path in sorted(HERE.glob("*.c"))), str(archive)]
    command += ["-T", str(script), "-o", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=toolchain.environment, check=False
    )
    if done.returncode:
        raise BuildError(f"the firmware of {artifact.name} does not link:\n{done.stderr[:2000]}")
    return Firmware(out, *linked_bytes(out))


def _program_text(artifact: Artifact) -> str:
    """Return the C file that firmware.h describes."""
    prefix = f"PE_{identifier(artifact.name).upper()}"
    memories = "\n".join(
        f"_Alignas(PE_ALIGN) unsigned char firmware_{name}[{prefix}_{name.upper()}_BYTES];"
        for name in ("params", "arena")
    )
    program = f"const pe_program *const firmware_program = &{program_symbol(artifact.name)};"
    includes = f'#include "{header_name(artifact.name)}"\n#include "firmware.h"\n'
    return f"{includes}\n{program}\n{memories}\n"
