"""This machine's OpenCL behind a library that counts calls and simulates faults."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from pockengine.tests.backends.gpu.watched import build_wrapper

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


def build_watched(folder: Path, flags: Sequence[str] = ()) -> None:
    """Build the library into a folder; `flags` define the fault."""
    build_wrapper(SOURCE, LIBRARY, folder, flags)
