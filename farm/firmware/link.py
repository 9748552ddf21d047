"""Link a freestanding artifact with start-up code, a clock and host file access, for emulation."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.artifact import Artifact
from pockengine.backends.native.interface import header_name, identifier, program_symbol
from pockengine.backends.native.sections import linked_bytes
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import Device
from pockengine.errors import BuildError, FarmError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class QemuMachine:
    """Start addresses of vector table, code and RAM on a QEMU machine, and its clock in MHz."""

    vectors: int
    flash: int
    memory: int
    clock_mhz: int


MACHINES = {
    "mps2-an500": QemuMachine(0x00000000, 0x00000000, 0x20000000, 25),
    "mps2-an505": QemuMachine(0x10000000, 0x10000000, 0x38000000, 20),
    "mps3-an547": QemuMachine(0x00000000, 0x70000000, 0x21000000, 32),
}
"""By QEMU's names. A tick is one of the board's clock; an instruction takes 1 ns."""

VECTOR_BYTES = 64
"""The vector table, which may be separate from the code."""

STACK_BYTES = 8192

STARTS = ("clock", "semihost", "start")
"""The C files of every firmware."""

_SCRIPT = """MEMORY {{
    VECTORS (rx) : ORIGIN = {vectors:#x}, LENGTH = {vector_bytes}
    FLASH (rx) : ORIGIN = {flash:#x}, LENGTH = {flash_bytes}
    RAM (rwx) : ORIGIN = {memory:#x}, LENGTH = {memory_bytes}
}}
ENTRY(_start)
SECTIONS {{
    .vectors : {{ KEEP(*(.vectors)) }} > VECTORS
    .text : {{ *(.text*) *(.rodata*) }} > FLASH
    .data : ALIGN(8) {{ data_begin = .; *(.data*) . = ALIGN(8); data_end = .; }} > RAM AT > FLASH
    data_in_flash = LOADADDR(.data);
    .bss (NOLOAD) : ALIGN(64) {{
        bss_begin = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .;
    }} > RAM
    .stack (NOLOAD) : ALIGN(8) {{ . = . + {stack}; stack_top = .; }} > RAM
    /DISCARD/ : {{ *(.ARM.ex*) *(.comment) *(.ARM.attributes) *(.debug*) }}
}}
"""


@dataclass(frozen=True)
class Firmware:
    """An ELF file with its flash and memory use, including the stack."""

    path: Path
    flash_bytes: int
    memory_bytes: int


def link_firmware(artifact: Artifact, device: Device, folder: Path) -> Firmware:
    """Return the firmware of an artifact for the QEMU machine of its device.

    BuildError, naming the section, if it exceeds the device's flash or memory.
    """
    source = folder / "program.c"
    source.write_text(_program_text(artifact))
    archive = artifact.folder / "lib" / f"libpockengine-{identifier(artifact.name)}.a"
    files = [source, HERE / "train.c", archive]
    return link_files(
        artifact.name, device, files, includes=[artifact.folder / "include"], folder=folder
    )


def link_files(
    name: str, device: Device, files: Sequence[Path], includes: Sequence[Path], folder: Path
) -> Firmware:
    """Link sources, objects and archives that define `train` with the start-up code.

    Unused functions are dropped. BuildError as above, with the program's name.
    """
    emulator = device.emulator
    if emulator is None or emulator.machine not in MACHINES:
        raise FarmError(f"no firmware for {device.name}: known machines are {', '.join(MACHINES)}")
    machine = MACHINES[emulator.machine]
    script, out = folder / "memory.ld", folder / "firmware"
    script.write_text(_script(machine, device))
    toolchain = find_toolchain(device)
    command = [*toolchain.command, "-ffreestanding", "-O2", "-g0", "-std=gnu11"]
    command += [f"-DCLOCK_MHZ={machine.clock_mhz}"]
    command += [*(f"-I{place}" for place in (*includes, HERE))]
    command += [str(path) for path in (*files, *(HERE / f"{part}.c" for part in STARTS))]
    command += ["-Wl,--gc-sections", "-T", str(script), "-o", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=toolchain.environment, check=False
    )
    if done.returncode:
        raise BuildError(f"the firmware of {name} does not link:\n{done.stderr[:2000]}")
    return Firmware(out, *linked_bytes(out))


def _script(machine: QemuMachine, device: Device) -> str:
    """Return the linker script; the vector table counts as flash."""
    behind = VECTOR_BYTES if machine.vectors == machine.flash else 0
    return _SCRIPT.format(
        vectors=machine.vectors,
        vector_bytes=VECTOR_BYTES,
        flash=machine.flash + behind,
        flash_bytes=device.flash_bytes - VECTOR_BYTES,
        memory=machine.memory,
        memory_bytes=device.memory_bytes,
        stack=STACK_BYTES,
    )


def _program_text(artifact: Artifact) -> str:
    """Return the C file described in firmware.h."""
    prefix = f"PE_{identifier(artifact.name).upper()}"
    memories = "\n".join(
        f"_Alignas(PE_ALIGN) unsigned char firmware_{name}[{prefix}_{name.upper()}_BYTES];"
        for name in ("params", "arena")
    )
    program = f"const pe_program *const firmware_program = &{program_symbol(artifact.name)};"
    includes = f'#include "{header_name(artifact.name)}"\n#include "firmware.h"\n'
    return f"{includes}\n{program}\n{memories}\n"
