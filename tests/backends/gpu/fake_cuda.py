"""The farm's fake CUDA driver in this process, with the emulated machine and its counters."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.devices import load_device
from pockengine.farm.gpu.driver import build_driver, build_twins

HOST = load_device("host")


class _Settings(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_int) for name in ("sm", "version", "devices", "fault")),
        ("memory", ctypes.c_uint64),
    ]


class Counts(ctypes.Structure):
    """Calls since the last change of settings: `counts` of fake_cuda.h."""

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
    """The emulated machine: by default an H100 with 4 GB of memory."""

    sm: int = 90
    version: int = 12060
    devices: int = 1
    fault: int = 0
    memory: int = 4 << 30


class Fake:
    """The driver in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = build_driver(HOST, folder)
        self.library = ctypes.CDLL(str(self.path))
        self.library.fake_cuda_counts.restype = Counts
        self._twins = 0

    def set(self, machine: Machine) -> None:
        """Change the machine, and reset the counts."""
        self.library.fake_cuda_set(_Settings(**vars(machine)))

    def counts(self) -> Counts:
        """Return the counts."""
        counts: Counts = self.library.fake_cuda_counts()
        return counts

    def know(self, kernels: Iterable[GpuKernel]) -> None:
        """Run these kernels by their CPU twins."""
        path = build_twins(HOST, kernels, self._folder / f"twins{self._twins}.so")
        self._twins += 1
        assert self.library.fake_cuda_add_twins(str(path).encode()) == 0
