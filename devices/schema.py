"""Devices as data: ISA, caches, memory and toolchain, one TOML file each in this folder.

The C backend reads vector width, caches and cores from here, the build reads target and flags, and
the farm reads how the board is emulated. `host` is this machine: missing values (`isa = "detect"`)
are detected here.

A user's own device files are in the folder `devices` of the configuration folder.

A device file is data: every field has a type and a range, and arguments of the compiler or the
emulator have restricted characters, so they cannot name a file or a plugin.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pockengine.devices.argument_forms import FLAG, WORD
from pockengine.devices.host import (
    detect_amx,
    detect_bf16,
    detect_cores,
    detect_isa,
    detect_memory,
    detect_mhz,
)
from pockengine.devices.isa import ARCHITECTURES, ISAS
from pockengine.errors import DeviceError, reason_of
from pockengine.files import read_toml
from pockengine.folders import config_folder
from pockengine.tables import from_table

_T = TypeVar("_T")

FOLDER = Path(__file__).parent

DEFAULT_BACKEND = "c"
"""Backend of a device file or manifest that names none."""

MOST_CORES = 1024

FIRST_BF16 = 80
"""The first CUDA architecture whose tensor cores multiply bf16."""

GPU_ARCHITECTURES = {"cuda": r"sm_[1-9][0-9]{1,2}", "opencl": "", "vulkan": ""}
"""Form of a GPU architecture's name, by language."""

NATIVE = "native"
"""The architecture of `host`, and of its toolchain's target: this machine's."""

NARROW = {"arm", "armeb", "thumb", "thumbeb", "hexagon", "x86", "riscv32", "wasm32"}
"""Architectures of target triples (zig's names) with 32-bit pointers."""


@dataclass(frozen=True)
class Cpu:
    """Cores and caches. Sizes in bytes, caches per core (l3: shared; 0 if there is none).

    `bf16`: it multiplies bf16 pairs; `amx`: it has Intel's tiles of them. `mhz` is the nominal
    clock, which converts modelled cycles to time; 0 if unknown.
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
    amx: bool = False
    mhz: int = 0

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector register."""
        return ISAS[self.isa].vector_bytes


@dataclass(frozen=True)
class ToolchainSpec:
    """How code is built: a zig target triple, a CPU name, extra compiler flags."""

    target: str
    cpu: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emulator:
    """Emulation of the board by QEMU: program, CPU, machine, memory in bytes.

    Without a machine, QEMU's user mode is used: a processor without a system. The program `node`
    runs WebAssembly, of this CPU alone.
    """

    cpu: str
    memory_bytes: int
    machine: str = ""
    program: str = "qemu-system-aarch64"


@dataclass(frozen=True)
class Gpu:
    """A graphics processor, for which kernels are chosen.

    `language` is what its driver supports: cuda, opencl or vulkan, and `other_languages` are what
    another driver of it does. `architecture` is CUDA's name, sm_87.
    Each of its `units` (CUDA's multiprocessors) does `lanes` f32 multiply-adds per cycle.
    `bandwidth` is in bytes per second; a group of items has `shared_bytes`. `memory_bytes` of 0
    means the device's own memory, which both share. Its tensor cores do `bf16_lanes` bf16
    multiply-adds per cycle and unit; 0 without tensor cores.
    """

    language: str
    model: str
    units: int
    lanes: int
    mhz: int
    bandwidth: int
    shared_bytes: int
    architecture: str = ""
    memory_bytes: int = 0
    bf16_lanes: int = 0
    other_languages: tuple[str, ...] = ()

    @property
    def languages(self) -> tuple[str, ...]:
        """All languages, the main one first."""
        return self.language, *self.other_languages

    @property
    def has_bf16(self) -> bool:
        """Whether it has bf16 tensor cores."""
        return self.bf16_lanes > 0


@dataclass(frozen=True)
class Device:
    """A kind of machine, with its memories.

    `flash_bytes` is the memory for code and frozen params on a device without files; 0 for a device
    with files, whose programs load their weights. `runs` is false if programs can only be built and
    inspected. `recognize` are words that identify a board in its description. `backend` is the
    default backend, `other_backends` are alternatives. `processor` and `compiler` are the tables
    that the C backend needs; other backends may not. `graphics` is its GPU, if any.
    """

    name: str
    description: str
    memory_bytes: int
    processor: Cpu | None = None
    compiler: ToolchainSpec | None = None
    emulator: Emulator | None = None
    graphics: Gpu | None = None
    runs: bool = True
    recognize: tuple[str, ...] = ()
    backend: str = DEFAULT_BACKEND
    flash_bytes: int = 0
    other_backends: tuple[str, ...] = ()

    def on(self, backend: str | None) -> "Device":
        """Return the device with another of its backends; unchanged without a name.

        DeviceError lists the supported ones.
        """
        if backend in (None, self.backend):
            return self
        if backend == "auto":
            raise DeviceError(
                "backend auto measures programs, which only compile does; name one of them here"
            )
        if backend not in self.other_backends:
            known = ", ".join((self.backend, *self.other_backends))
            raise DeviceError(
                f"device {self.name} takes no backend {backend!r}, but {known}; name it in "
                "other_backends of its file, or choose another device"
            )
        return replace(self, backend=backend)

    @property
    def cpu(self) -> Cpu:
        """The file's [cpu] table; DeviceError if it has none."""
        return self._section("cpu", self.processor)

    @property
    def toolchain(self) -> ToolchainSpec:
        """The file's [toolchain] table; DeviceError if it has none."""
        return self._section("toolchain", self.compiler)

    @property
    def gpu(self) -> Gpu:
        """The file's [gpu] table; DeviceError if it has none."""
        return self._section("gpu", self.graphics)

    @property
    def freestanding(self) -> bool:
        """Whether programs for it run without an operating system and a C library."""
        return self.compiler is not None and "freestanding" in self.compiler.target

    @property
    def wasm(self) -> bool:
        """Whether its programs are WebAssembly modules."""
        return self.compiler is not None and self.compiler.target.startswith("wasm32")

    @property
    def wasm_threads(self) -> bool:
        """Whether its programs are WebAssembly modules over a memory that threads share."""
        return self.wasm and "+atomics" in self.toolchain.cpu

    @property
    def mhz(self) -> int:
        """The nominal clock; 0 if the file has none."""
        return 0 if self.processor is None else self.processor.mhz

    def _section(self, name: str, section: _T | None) -> _T:
        if section is None:
            raise DeviceError(
                f"device {self.name} has no [{name}] table, which is needed here: add it to its "
                "file, or choose another device"
            )
        return section

    @property
    def address_bits(self) -> int:
        """Width of a pointer in programs for this device."""
        arch = self.toolchain.target.partition("-")[0]
        if arch == NATIVE:
            return 8 * struct.calcsize("P")
        return 32 if arch in NARROW else 64


TABLES = {
    "cpu": ("processor", Cpu),
    "toolchain": ("compiler", ToolchainSpec),
    "emulator": ("emulator", Emulator),
    "gpu": ("graphics", Gpu),
}
"""The tables of a device file, with the fields of a Device that they fill."""


def own_folder() -> Path:
    """Return the folder of the user's own device files, which can be loaded by name."""
    return config_folder() / "devices"


def known_devices() -> tuple[str, ...]:
    """Names of all devices, the user's own among them, sorted."""
    return tuple(sorted(_files()))


def _files() -> dict[str, Path]:
    """Return the device files by name; a built-in file takes precedence over the user's."""
    return {path.stem: path for folder in (own_folder(), FOLDER) for path in folder.glob("*.toml")}


def load_device(name: str) -> Device:
    """Read a device by name; DeviceError lists the known devices, or names the file's fault."""
    files = _files()
    if name not in files:
        raise DeviceError(
            f"unknown device {name!r}; known devices: {', '.join(sorted(files))}; a file of your "
            f"own is used by its path, or by its name in {own_folder()}"
        )
    return read_device(files[name])


def find_device(device: Device | str | Path) -> Device:
    """Return a device itself, one by name, or one from a user's TOML file."""
    if isinstance(device, Device):
        return device
    path = Path(device)
    return read_device(path) if path.suffix == ".toml" else load_device(str(device))


def read_device(path: Path) -> Device:
    """Read one device file."""
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise DeviceError(f"device file {path.name}: {reason_of(error)}") from error
    tables = {key: _table(table, key, path) for key in TABLES}
    cpu = tables["cpu"]
    if cpu is not None and cpu.get("isa") == "detect":
        values = {"isa": detect_isa(), "cores": detect_cores(), "bf16": detect_bf16()}
        values |= {"amx": detect_amx()}
        cpu |= {**values, "mhz": detect_mhz()}
        table["memory_bytes"] = detect_memory() or table.get("memory_bytes")
    for key, section in tables.items():
        if section is not None:
            table[key] = _make(TABLES[key][1], section, f"{path.name}, [{key}]")
    device = _make(Device, table, path.name, {field: key for key, (field, _) in TABLES.items()})
    _check(device, path)
    return device


def _table(table: dict[str, Any], name: str, path: Path) -> dict[str, Any] | None:
    section = table.pop(name, None)
    if section is not None and not isinstance(section, dict):
        raise DeviceError(f"device file {path.name}: {name} is no table: write [{name}]")
    return section


def _make(
    kind: type[_T], table: dict[str, Any], where: str, keys: Mapping[str, str] | None = None
) -> _T:
    try:
        return from_table(kind, table, keys)
    except ValueError as error:
        raise DeviceError(f"device file {where}: {error}") from error


def _check(device: Device, path: Path) -> None:
    if device.name != path.stem:
        raise DeviceError(f"device file {path.name} says name = {device.name!r}; they must agree")
    for name, section in (("cpu", device.processor), ("toolchain", device.compiler)):
        if section is None and device.backend == DEFAULT_BACKEND:
            raise DeviceError(
                f"device file {path.name} has no [{name}] table, which the backend "
                f"{device.backend} needs"
            )
    if device.freestanding and not device.flash_bytes:
        raise DeviceError(
            f"device file {path.name}: a program without an operating system has no files; say "
            "how much flash_bytes hold its weights"
        )
    if device.processor is not None:
        _check_cpu(device.processor, path)
    if device.graphics is not None:
        _check_gpu(device.graphics, path)
    for name, text, allowed in _arguments(device):
        if not re.fullmatch(allowed, text, re.ASCII):
            raise DeviceError(f"device file {path.name}: {name} cannot be {text!r}")


def _check_cpu(cpu: Cpu, path: Path) -> None:
    if cpu.isa not in ISAS:
        known = ", ".join(ISAS)
        raise DeviceError(f"device file {path.name}: unknown isa {cpu.isa!r}; one of {known}")
    machines = [name for name, isas in ARCHITECTURES.items() if cpu.isa in isas]
    if machines and cpu.arch not in {*machines, NATIVE}:
        raise DeviceError(
            f"device file {path.name}: isa = {cpu.isa!r} is of {' and '.join(machines)}, and arch "
            f"is {cpu.arch!r}; correct one of them"
        )
    if not 1 <= cpu.cores <= MOST_CORES or cpu.line_bytes < 1:
        raise DeviceError(
            f"device file {path.name}: {cpu.cores} cores, and cache lines of {cpu.line_bytes} "
            f"bytes; give 1 to {MOST_CORES} cores, and lines of 1 byte or more"
        )


def _check_gpu(gpu: Gpu, path: Path) -> None:
    known = GPU_ARCHITECTURES.get(gpu.language)
    if known is None or not re.fullmatch(known, gpu.architecture, re.ASCII):
        raise DeviceError(
            f"device file {path.name}: no GPU has language = {gpu.language!r} and architecture = "
            f"{gpu.architecture!r}; write cuda and sm_87 or the like, or opencl or vulkan and none"
        )
    if unknown := set(gpu.other_languages) - GPU_ARCHITECTURES.keys():
        raise DeviceError(
            f"device file {path.name}: no GPU has other_languages = {sorted(unknown)}; choose from "
            f"{', '.join(GPU_ARCHITECTURES)}"
        )
    if min(gpu.units, gpu.lanes, gpu.mhz, gpu.bandwidth, gpu.shared_bytes) < 1:
        raise DeviceError(f"device file {path.name}: numbers of [gpu] begin with 1")
    if gpu.memory_bytes < 0:
        raise DeviceError(f"device file {path.name}: a GPU of {gpu.memory_bytes} bytes of memory")
    newest = gpu.language == "cuda" and int(gpu.architecture.removeprefix("sm_")) >= FIRST_BF16
    if gpu.bf16_lanes < 0 or (gpu.has_bf16 and not newest):
        raise DeviceError(
            f"device file {path.name}: bf16_lanes = {gpu.bf16_lanes} of [gpu]; CUDA from "
            f"sm_{FIRST_BF16} on has tensor cores for bf16; leave it out for others"
        )


def _arguments(device: Device) -> list[tuple[str, str, str]]:
    """Return the compiler's or emulator's arguments: name, text, and allowed form."""
    rows = [("backend", name, WORD) for name in (device.backend, *device.other_backends)]
    if device.processor is not None:
        rows.append(("arch", device.processor.arch, WORD))
    if (toolchain := device.compiler) is not None:
        rows += [
            ("target", toolchain.target, WORD),
            ("the toolchain's cpu", toolchain.cpu, WORD),
            *(("a flag", flag, FLAG) for flag in toolchain.flags),
        ]
    if device.emulator is not None:
        rows += [
            ("the emulator's cpu", device.emulator.cpu, WORD),
            ("its machine", device.emulator.machine, rf"(?:{WORD})?"),
            ("its program", device.emulator.program, r"qemu-[\w-]+|node"),
        ]
    return rows
