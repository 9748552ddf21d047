"""This machine's OpenCL device: its first GPU, else its first device, as programs choose it."""

import ctypes
from collections.abc import Iterator

from pockengine.errors import FarmError
from pockengine.farm.gpu.driver_device import DriverDevice, load_driver

LIBRARIES = ("libOpenCL.so.1", "libOpenCL.so")
GPU, ANY = 1 << 2, 0xFFFFFFFF
"""CL_DEVICE_TYPE_GPU and CL_DEVICE_TYPE_ALL, of CL/cl.h."""
DEVICE_NAME = 0x102B
MOST = 16


def first_device() -> DriverDevice:
    """Return the device that a program uses; FarmError if there is none."""
    library = _library()
    for kind in (GPU, ANY):
        for device in _devices(library, kind):
            return DriverDevice(_name(library, device), kind == GPU)
    raise FarmError(
        "this machine's OpenCL has no device: see what clinfo lists, and install a GPU's driver, "
        "or PoCL for a CPU, whose cache folder (POCL_CACHE_DIR) must be writable"
    )


def _library() -> ctypes.CDLL:
    return load_driver(
        LIBRARIES,
        "this machine has no OpenCL: install ocl-icd-libopencl1 or what your system calls it, "
        "and a GPU's driver, or PoCL for a CPU",
    )


def _devices(library: ctypes.CDLL, kind: int) -> Iterator[ctypes.c_void_p]:
    """Yield the first device of a kind on each platform; failing drivers have none."""
    platforms, count = (ctypes.c_void_p * MOST)(), ctypes.c_uint()
    if library.clGetPlatformIDs(MOST, platforms, ctypes.byref(count)) != 0:
        return
    for platform in platforms[: min(count.value, MOST)]:
        device = ctypes.c_void_p()
        query = ctypes.c_void_p(platform), ctypes.c_ulong(kind), 1, ctypes.byref(device), None
        if library.clGetDeviceIDs(*query) == 0:
            yield device


def _name(library: ctypes.CDLL, device: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(256)
    library.clGetDeviceInfo(device, DEVICE_NAME, ctypes.c_size_t(len(text) - 1), text, None)
    return text.value.decode(errors="replace").strip() or "a device without a name"
