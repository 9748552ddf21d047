"""Devices as data: ISA, caches, memory and toolchain, one TOML file each in this folder.

The C backend reads vector width, caches and cores from here, the build reads target and flags, and
the farm reads how the board is emulated. `host` is this machine: what its file leaves out
(`isa = "detect"`) is found out here.

A device file is data: every field has its type and its range, and what becomes an argument of the
compiler or the emulator is made of few characters, so that it can neither name a file nor a plugin.
"""

import re
import struct
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pockengine.devices.host import detect_bf16, detect_cores, detect_isa, detect_memory, detect_mhz
from pockengine.errors import DeviceError
from pockengine.files import read_toml

_T = TypeVar("_T")

FOLDER = Path(__file__).parent

LARGEST = 1 << 62
MOST_CORES = 1024

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "sse2": 16, "neon": 16, "scalar": 4}


NARROW = {"arm", "armeb", "thumb", "thumbeb", "hexagon", "x86", "riscv32", "wasm32"}
"""Architectures of target triples, in zig's words, whose pointers have 32 bits."""


@dataclass(frozen=True)
class Cpu:
    """Cores and caches. Sizes in bytes, caches per core (l3: shared; 0 where there is none).

    `bf16` says that it multiplies pairs of bf16 numbers. `mhz` is the nominal clock, by which
    modelled cycles become modelled time; 0 where it is not known.
    """

    arch: str
    model: str
    cores: int
    isa: str
    line_bytes: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    bf16: bool = False
    mhz: int = 0

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector register."""
        return VECTOR_BYTES[self.isa]


@dataclass(frozen=True)
class Toolchain:
    """How code is built: a zig target triple, a CPU name, extra compiler flags."""

    target: str
    cpu: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emulator:
    """How QEMU stands in for the board: its program, CPU and machine, memory in bytes.

    Without a machine the program is one of QEMU's user mode: a processor without a system.
    """

    cpu: str
    memory_bytes: int
    machine: str = ""
    program: str = "qemu-system-aarch64"


@dataclass(frozen=True)
class Device:
    """A kind of machine, and all its memory.

    `runs` is false where programs can only be built and inspected. `recognise` are words by which a
    board that says one of them of itself is known to be one.
    """

    name: str
    description: str
    memory_bytes: int
    cpu: Cpu
    toolchain: Toolchain
    emulator: Emulator | None = None
    runs: bool = True
    recognise: tuple[str, ...] = ()

    @property
    def address_bits(self) -> int:
        """Width of a pointer in programs for this device."""
        arch = self.toolchain.target.partition("-")[0]
        if arch == "native":
            return 8 * struct.calcsize("P")
        return 32 if arch in NARROW else 64


def known_devices() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_device(name: str) -> Device:
    """Read a device by name; DeviceError lists the known ones, or says what the file gets wrong."""
    if name not in known_devices():
        raise DeviceError(f"unknown device {name!r}; known devices: {', '.join(known_devices())}")
    return read_device(FOLDER / f"{name}.toml")


def read_device(path: Path) -> Device:
    """Read one device file."""
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise DeviceError(f"device file {path.name}: {error}") from error
    cpu = _table(table, "cpu", path)
    if cpu.get("isa") == "detect":
        found = {"isa": detect_isa(), "cores": detect_cores(), "bf16": detect_bf16()}
        cpu |= {**found, "mhz": detect_mhz()}
        table["memory_bytes"] = detect_memory() or table.get("memory_bytes")
    toolchain = _table(table, "toolchain", path)
    emulator = _table(table, "emulator", path) if "emulator" in table else None
    device = _make(
        Device,
        {
            **table,
            "cpu": _make(Cpu, cpu, path),
            "toolchain": _make(Toolchain, toolchain, path),
            "emulator": None if emulator is None else _make(Emulator, emulator, path),
        },
        path,
    )
    _check(device, path)
    return device


def _table(table: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    section = table.pop(name, None)
    if not isinstance(section, dict):
        raise DeviceError(f"device file {path.name} has no [{name}] table")
    return section


def _make(kind: type[_T], table: dict[str, Any], path: Path) -> _T:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise DeviceError(f"device file {path.name}: unknown {unknown}; known: {sorted(names)}")
    types = get_type_hints(kind)
    try:
        return kind(**{name: _typed(name, table[name], types[name]) for name in table})
    except (TypeError, ValueError) as error:
        raise DeviceError(f"device file {path.name}: {error}") from error


def _typed(name: str, value: Any, wanted: Any) -> Any:
    """Return a value of a file as the field has it; ValueError where it is of another type."""
    if get_origin(wanted) is tuple:
        if not isinstance(value, list) or any(type(item) is not str for item in value):
            raise ValueError(f"{name} must be a list of texts")
        return tuple(value)
    kinds = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be of type {kinds[0].__name__}")
    if type(value) is int and not 0 <= value < LARGEST:
        raise ValueError(f"{name} must be from 0 to 2^62")
    return value


def _check(device: Device, path: Path) -> None:
    if device.name != path.stem:
        raise DeviceError(f"device file {path.name} says name = {device.name!r}; they must agree")
    if device.cpu.isa not in VECTOR_BYTES:
        known = ", ".join(VECTOR_BYTES)
        raise DeviceError(
            f"device file {path.name}: unknown isa {device.cpu.isa!r}; one of {known}"
        )
    if not 1 <= device.cpu.cores <= MOST_CORES or device.cpu.line_bytes < 1:
        raise DeviceError(f"device file {path.name}: it has no cores, or lines of no bytes")
    for name, text, allowed in _arguments(device):
        if not re.fullmatch(allowed, text, re.ASCII):
            raise DeviceError(f"device file {path.name}: {name} cannot be {text!r}")


_WORD = r"\w[\w.+-]*"
_FLAG = r"-m[\w.+=,-]+|-O[0-3sz]|-f(?:no-)?(?:omit-frame-pointer|vectorize|slp-vectorize)"
"""Flags that say for which machine and how far to optimise; `-mllvm` takes another argument."""


def _arguments(device: Device) -> list[tuple[str, str, str]]:
    """Return what a compiler or an emulator is called with: name, text, and what it may be."""
    rows = [
        ("arch", device.cpu.arch, _WORD),
        ("target", device.toolchain.target, _WORD),
        ("the toolchain's cpu", device.toolchain.cpu, _WORD),
        *(("a flag", flag, rf"(?!-mllvm|-mlinker)(?:{_FLAG})") for flag in device.toolchain.flags),
    ]
    if device.emulator is not None:
        rows += [
            ("the emulator's cpu", device.emulator.cpu, _WORD),
            ("its machine", device.emulator.machine, rf"(?:{_WORD})?"),
            ("its program", device.emulator.program, r"qemu-[\w-]+"),
        ]
    return rows
