"""OpenCL 1.2 by its library: a device, programs built of text, buffers, and launches in order.

The library is loaded when a device is opened, as every driver's is. Nothing here waits but copies.
What is made lives as long as the process.
"""

import ctypes
from collections.abc import Sequence
from ctypes.util import find_library

import numpy as np

from pockengine.backends.gpu.kernel import Launch
from pockengine.errors import BuildError, RuntimeFailure

Handle = ctypes.c_void_p
ANY_DEVICE, READ_WRITE, REGION, BUILD_LOG, NAME = 0xFFFFFFFF, 1, 0x1220, 0x1183, 0x102B
ERROR_LINES = 12


class OpenCl:
    """The first device of this machine, with one queue that runs in order."""

    def __init__(self) -> None:
        """Open it; RuntimeFailure where there is no OpenCL or no device."""
        path = find_library("OpenCL")
        if path is None:
            raise RuntimeFailure("this machine has no libOpenCL: install the GPU's driver, or PoCL")
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise RuntimeFailure(f"cannot load {path}: {error}") from error
        platform, device = Handle(), Handle()
        self._check("clGetPlatformIDs", 1, ctypes.byref(platform), None)
        self._check(
            "clGetDeviceIDs", platform, ctypes.c_uint64(ANY_DEVICE), 1, ctypes.byref(device), None
        )
        self._device = device
        self._context = self._made("clCreateContext", None, 1, ctypes.byref(device), None, None)
        self._queue = self._made("clCreateCommandQueue", self._context, device, ctypes.c_uint64(0))

    @property
    def name(self) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(256)
        self._check("clGetDeviceInfo", self._device, NAME, ctypes.c_size_t(256), text, None)
        return text.value.decode(errors="replace")

    def build(self, text: str) -> Handle:
        """Build a program; BuildError has the driver's first words."""
        data = ctypes.c_char_p(text.encode())
        program = self._made(
            "clCreateProgramWithSource", self._context, 1, ctypes.byref(data), None
        )
        options = b"-cl-std=CL1.2"
        status = self._call(
            "clBuildProgram", program, 1, ctypes.byref(self._device), options, None, None
        )
        if status:
            log = ctypes.create_string_buffer(1 << 16)
            size = ctypes.c_size_t(len(log))
            self._call("clGetProgramBuildInfo", program, self._device, BUILD_LOG, size, log, None)
            lines = log.value.decode(errors="replace").splitlines()[:ERROR_LINES]
            raise BuildError(f"{self.name} does not build the kernels:\n" + "\n".join(lines))
        return program

    def buffer(self, nbytes: int) -> Handle:
        """Allocate memory of the device."""
        size = ctypes.c_size_t(max(nbytes, 1))
        return self._made("clCreateBuffer", self._context, ctypes.c_uint64(READ_WRITE), size, None)

    def part(self, buffer: Handle, offset: int, nbytes: int) -> Handle:
        """Return a part of a buffer, as a buffer that kernels take."""
        region = (ctypes.c_size_t * 2)(offset, nbytes)
        flags = ctypes.c_uint64(READ_WRITE)
        return self._made("clCreateSubBuffer", buffer, flags, REGION, ctypes.byref(region))

    def write(self, buffer: Handle, data: np.ndarray) -> None:
        """Write a buffer's first bytes."""
        self._copy("clEnqueueWriteBuffer", buffer, np.ascontiguousarray(data))

    def read(self, buffer: Handle, data: np.ndarray) -> None:
        """Read a buffer's first bytes, once all launches before have ended."""
        self._copy("clEnqueueReadBuffer", buffer, data)

    def kernel(self, program: Handle, launch: Launch, arguments: Sequence[Handle]) -> Handle:
        """Return a launch's function with its arguments, to be launched any number of times."""
        kernel = self._made("clCreateKernel", program, launch.function.encode())
        size = ctypes.c_size_t(ctypes.sizeof(Handle))
        for place, argument in enumerate(arguments):
            self._check("clSetKernelArg", kernel, place, size, ctypes.byref(argument))
        return kernel

    def launch(self, kernel: Handle, launch: Launch) -> None:
        """Put a launch into the queue."""
        whole, group = (
            ctypes.c_size_t(items) for items in (launch.groups * launch.items, launch.items)
        )
        sizes = ctypes.byref(whole), ctypes.byref(group)
        self._check("clEnqueueNDRangeKernel", self._queue, kernel, 1, None, *sizes, 0, None, None)

    def _copy(self, name: str, buffer: Handle, data: np.ndarray) -> None:
        size, place = ctypes.c_size_t(data.nbytes), Handle(data.ctypes.data)
        start = ctypes.c_size_t(0)
        self._check(name, self._queue, buffer, 1, start, size, place, 0, None, None)

    def _made(self, name: str, *arguments: object) -> Handle:
        """Call a function that makes an object and says by its last argument how it went."""
        function, status = getattr(self._library, name), ctypes.c_int()
        function.restype = Handle
        made = Handle(function(*arguments, ctypes.byref(status)))
        if status.value:
            raise RuntimeFailure(f"OpenCL: {name} failed with {status.value}")
        return made

    def _check(self, name: str, *arguments: object) -> None:
        status = self._call(name, *arguments)
        if status:
            raise RuntimeFailure(f"OpenCL: {name} failed with {status}")

    def _call(self, name: str, *arguments: object) -> int:
        status: int = getattr(self._library, name)(*arguments)
        return status
