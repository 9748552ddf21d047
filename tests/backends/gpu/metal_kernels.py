"""Kernels in the Metal Shading Language, compiled by clang for this CPU and run in the emulation.

`metal_stdlib.h` has what they call of Metal's library, in C++ for OpenCL: its address spaces are
Metal's, and a pointer without one is a pointer to any.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.source import METAL, source_of
from pockengine.errors import BuildError
from pockengine.tests.backends.gpu.sanitized import Sanitized, Watched

HERE = Path(__file__).parent
NO_DOUBLES = ("-Xclang", "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64")
LANGUAGE = ("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", *NO_DOUBLES)
FLAGS = (*LANGUAGE, "-Werror", "-Wno-unknown-attributes")
ERROR_LINES = 40

SHUFFLED = 5
"""An order of items and groups in the emulation."""


def clang() -> str:
    """Return the path of zig, whose clang has C++ for OpenCL; skip without it."""
    found = find_spec("ziglang")
    if found is None or not found.origin:
        pytest.skip("no clang: pip install ziglang")
    return str(Path(found.origin).parent / "zig")


def compile_metal(text: str, folder: Path, *flags: str) -> bytes:
    """Compile a text to the file that the flags ask for; BuildError with clang's messages."""
    shutil.copyfile(HERE / "metal_stdlib.h", folder / "metal_stdlib")
    source, out = folder / "kernels.metal", folder / "compiled"
    source.write_text(text, encoding="utf-8")
    command = [clang(), "clang", *FLAGS, f"-I{folder}", *flags, str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise BuildError("\n".join(done.stderr.splitlines()[:ERROR_LINES]))
    return out.read_bytes() if out.exists() else b""


class MetalProgram(Sanitized):
    """A program of kernels whose text is Metal's."""

    def __init__(self, cases: Sequence[Watched], folder: Path) -> None:
        text = source_of([case.kernel for case in cases], METAL)
        kernels = folder / "kernels.o"
        kernels.write_bytes(compile_metal(text, folder, "-O1", "-fPIC", "-c"))
        declared = [replace(case, kernel=_declared(case.kernel)) for case in cases]
        super().__init__(declared, None, folder, compiled=[kernels])


def _declared(kernel: GpuKernel) -> GpuKernel:
    """Return a kernel with C declarations in place of its text.

    A macro appends the position of an item, which Metal passes as the last arguments.
    """
    pointers = ", ".join("void *" for _ in kernel.parameters)
    lines = [
        f"void {launch.function}({pointers}, unsigned, unsigned);\n"
        f"#define {launch.function}(...) "
        f"({launch.function})(__VA_ARGS__, (unsigned)pe_item(), (unsigned)pe_group())"
        for launch in kernel.launches
    ]
    return replace(kernel, text="\n".join(lines))
