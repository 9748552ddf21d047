"""A CUDA driver that is none: `fake/` built, and the CPU's twins of the kernels that it runs.

What is opened in this process after `Fake` was made finds it in the place of a driver.
"""

import ctypes
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pockengine.backends.c.build import compile_flags
from pockengine.backends.c.toolchain import find_toolchain
from pockengine.backends.gpu.emulated import launch_rows
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.source import DIALECT
from pockengine.devices import load_device

SOURCES = Path(__file__).parent / "fake"
DRIVER = "libcuda.so.1"
TWINS = "twins.so"


class _Settings(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_int) for name in ("sm", "version", "devices", "fault")),
        ("memory", ctypes.c_uint64),
    ]


class Counts(ctypes.Structure):
    """What was done since the settings were made: `counts` of fake_cuda.h."""

    _fields_: ClassVar = [
        (name, ctypes.c_int)
        for name in (
            "captures",
            "launches_in_captures",
            "graph_launches",
            "launches",
            "bytes_there",
            "bytes_here",
            "live",
        )
    ]


@dataclass(frozen=True)
class Machine:
    """What the driver finds: by default an H100 with 4 GB of memory."""

    sm: int = 90
    version: int = 12060
    devices: int = 1
    fault: int = 0
    memory: int = 4 << 30


class Fake:
    """The driver in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = build_driver(folder)
        self.library = ctypes.CDLL(str(self.path))
        self.library.fake_cuda_counts.restype = Counts
        self._twins = 0

    def set(self, machine: Machine) -> None:
        """Become another machine, and count anew."""
        self.library.fake_cuda_set(_Settings(**vars(machine)))

    def counts(self) -> Counts:
        """Return what was done."""
        counts: Counts = self.library.fake_cuda_counts()
        return counts

    def know(self, kernels: Iterable[GpuKernel]) -> None:
        """Run these kernels by their twins."""
        path = build_twins(kernels, self._folder / f"twins{self._twins}.so")
        self._twins += 1
        assert self.library.fake_cuda_add_twins(str(path).encode()) == 0


def build_driver(folder: Path, flags: Sequence[str] = ()) -> Path:
    """Build the driver into a folder."""
    folder.mkdir(exist_ok=True)
    return _build(sorted(SOURCES.glob("*.c")), folder / DRIVER, [f"-Wl,-soname,{DRIVER}", *flags])


def build_twins(kernels: Iterable[GpuKernel], path: Path) -> Path:
    """Build kernels by the CPU's prelude, with a table of their launches."""
    chosen = {kernel.symbol: kernel for kernel in kernels}
    texts, rows = ['#include "pe_gpu_cpu.h"'], []
    for kernel in chosen.values():
        calls, launches = launch_rows(kernel)
        texts += [kernel.text, *calls]
        rows += launches
    texts.append("const pe_gpu_launch pe_twins[] = {\n" + "\n".join(rows) + "\n};")
    texts.append(f"const int pe_twin_count = {len(rows)};\n")
    source = path.with_suffix(".c")
    source.write_text("\n".join(texts), encoding="utf-8")
    includes = [f"-I{DIALECT}", f"-I{DIALECT / 'cpu'}"]
    return _build([source, DIALECT / "cpu" / "pe_gpu_cpu.c"], path, includes)


def _build(sources: Sequence[Path], library: Path, flags: Sequence[str]) -> Path:
    """Build a library for this machine, whose numbers are those of programs."""
    host = load_device("host")
    toolchain = find_toolchain(host)
    kept = [flag for flag in compile_flags(host) if flag != "-fvisibility=hidden"]
    command = [*toolchain.command, *kept, "-shared", *map(str, sources), *flags]
    command += ["-o", str(library), "-lm", "-lpthread", "-ldl"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=toolchain.environment
    )
    assert done.returncode == 0, done.stderr
    return library
