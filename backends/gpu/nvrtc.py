"""Compile CUDA text for one architecture with NVRTC, NVIDIA's compiler as a library.

It is a wheel, and needs neither a GPU nor a driver. The result includes ptxas's report of each
kernel.
"""

import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pockengine.errors import BuildError, MissingPackage

PACKAGE = "nvidia.cuda_nvrtc"
WHEEL = "nvidia-cuda-nvrtc-cu12"
LIBRARY = "libnvrtc.so.12"
OPTIONS = ("--std=c++17", "--ptxas-options=-v")
ERROR_LINES = 12

_USAGE = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers([^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Usage:
    """Resources of a kernel: registers per item, spilled bytes, and shared bytes."""

    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Code of one architecture, and the resources of each kernel."""

    code: bytes
    usage: Mapping[str, Usage]


def build_cubin(text: str, architecture: str) -> Cubin:
    """Compile text for an architecture such as `sm_87`; BuildError with the compiler's first
    messages.
    """
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
        )
    )
    try:
        options = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in OPTIONS)]
        status = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            lines = [line for line in log.splitlines() if line.strip()][:ERROR_LINES]
            raise BuildError(f"NVRTC does not build for {architecture}:\n" + "\n".join(lines))
        return Cubin(_bytes(program, "CUBIN"), _usages(log))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def compiler_version() -> int:
    """Return NVRTC's version as drivers number them: 12060 is 12.6."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value * 1000 + minor.value * 10


def _usages(log: str) -> dict[str, Usage]:
    found = {}
    for name, stores, loads, registers, details in _USAGE.findall(log):
        shared = _SHARED.search(details)
        spills = int(stores) + int(loads)
        found[name] = Usage(int(registers), spills, int(shared[1]) if shared else 0)
    return found


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    library, size = _library(), ctypes.c_size_t()
    _check(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(getattr(library, f"nvrtcGet{what}")(program, data))
    return data.raw


def _check(status: int) -> None:
    if status:
        raise BuildError(f"NVRTC failed with status {status}")


@cache
def _library() -> ctypes.CDLL:
    """Load the wheel's library; MissingPackage if it is not installed."""
    try:
        found = find_spec(PACKAGE)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise MissingPackage(f"building for CUDA needs {WHEEL}: pip install {WHEEL}")
    folder = Path(next(iter(found.submodule_search_locations)))
    return ctypes.CDLL(str(folder / "lib" / LIBRARY))
