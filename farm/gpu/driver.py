"""A fake CUDA driver for boards without a GPU: the C files in this folder.

A program of the `cuda` backend loads it instead of NVIDIA's driver, with its kernels compiled for
the CPU from the same source ("twins"). It tests the host side of training; its speed is
meaningless.
"""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from pockengine.backends.gpu.cuda import CudaBackend
from pockengine.backends.gpu.emulated import launch_rows
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.source import DIALECT
from pockengine.backends.native.build import compile_flags
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device
from pockengine.errors import BuildError

SOURCES = Path(__file__).parent
DRIVER, TWINS = "libcuda.so.1", "twins.so"
"""File names; the driver looks for the twins in its own folder."""

ERROR_LINES = 12


def emulated_gpu(device: Device, program: Program, folder: Path) -> dict[str, Path]:
    """Build the fake GPU of a `cuda` program for a board without one.

    Return the libraries by file name; they go into one folder on the board.
    """
    backend = CudaBackend(device)
    architecture = device.gpu.architecture.removeprefix("sm_")
    driver = build_driver(backend.device, folder, [f"-DFAKE_SM={architecture}"])
    twins = build_twins(backend.device, backend.kernels(program), folder / TWINS)
    return {DRIVER: driver, TWINS: twins}


def build_driver(device: Device, folder: Path, flags: Sequence[str] = ()) -> Path:
    """Build the driver for a device that supports dynamic loading; BuildError if it fails."""
    folder.mkdir(exist_ok=True)
    sources = sorted(SOURCES.glob("*.c"))
    return _build(device, sources, folder / DRIVER, [f"-Wl,-soname,{DRIVER}", *flags])


def build_twins(device: Device, kernels: Iterable[GpuKernel], path: Path) -> Path:
    """Build kernels with the CPU prelude, and a table of their launch functions."""
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
    return _build(device, [source, DIALECT / "cpu" / "pe_gpu_cpu.c"], path, includes)


def _build(device: Device, sources: Sequence[Path], library: Path, flags: Sequence[str]) -> Path:
    """Build a library with the same flags as programs, for equal numerical results."""
    toolchain = find_toolchain(device)
    own_flags = [flag for flag in compile_flags(device) if flag != "-fvisibility=hidden"]
    command = [*toolchain.command, *own_flags, "-shared", *map(str, sources), *flags]
    command += ["-o", str(library), "-lm", "-lpthread", "-ldl"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=toolchain.environment
    )
    if done.returncode:
        lines = "\n".join(done.stderr.splitlines()[:ERROR_LINES])
        raise BuildError(f"the emulated GPU's {library.name} does not build:\n{lines}")
    return library
