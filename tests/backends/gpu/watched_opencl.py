"""This machine's OpenCL behind a library that counts calls and simulates faults."""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import load_device

SOURCE = Path(__file__).parent / "watched_opencl.c"
LIBRARY = "libOpenCL.so.1"


def has_opencl() -> bool:
    """Whether this machine has OpenCL with a driver."""
    count = ctypes.c_uint(0)
    try:
        ctypes.CDLL(LIBRARY).clGetPlatformIDs(0, None, ctypes.byref(count))
    except OSError:
        return False
    return count.value > 0


def build_watched(folder: Path, flags: Sequence[str] = ()) -> Path:
    """Build the library into a folder; `flags` define the fault."""
    toolchain = find_toolchain(load_device("host"))
    command = [*toolchain.command, "-shared", "-fPIC", str(SOURCE), f'-DREAL="{_real()}"', *flags]
    command += ["-o", str(folder / LIBRARY), "-ldl"]
    subprocess.run(command, check=True, env=toolchain.environment)
    return folder / LIBRARY


def _real() -> str:
    """Return the path of this machine's loaded library."""
    loaded = re.search(r"/\S*/libOpenCL\.so\S*", Path("/proc/self/maps").read_text("utf-8"))
    assert loaded is not None
    return loaded[0]
