"""Properties of this machine that kernels depend on."""

import os
import platform
from pathlib import Path

from pockengine.devices.cgroups import granted_cores, memory_limit
from pockengine.devices.isa import ARCHITECTURES, ISAS


def detect_isa() -> str:
    """Widest vector extension of this machine that kernels support."""
    features = _cpu_flags()
    names = ARCHITECTURES.get(platform.machine(), ())
    return next((name for name in names if ISAS[name].features <= features), "scalar")


def detect_bf16() -> bool:
    """Whether this machine multiplies bf16 pairs in the vectors that kernels use."""
    return detect_isa() == "avx512" and "avx512_bf16" in _cpu_flags()


def detect_amx() -> bool:
    """Whether this machine multiplies tiles of bf16 pairs."""
    return detect_bf16() and {"amx_tile", "amx_bf16"} <= _cpu_flags()


def detect_cores() -> int:
    """Cores that this process may run on all the time, at least one.

    A container's quota is rounded down: threads that wait for each other are slow on fewer cores.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    granted = granted_cores()
    return cores if granted is None else max(1, min(cores, int(granted)))


def detect_mhz() -> int:
    """Current clock of the first core in MHz; 0 if the system does not report it."""
    megahertz = _cpu_line("cpu MHz").rpartition(":")[2].strip()
    try:
        return round(float(megahertz))
    except ValueError:
        return 0


def detect_memory() -> int:
    """Bytes of memory that this process may use; 0 if the system does not report it."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
    limit = memory_limit()
    return machine if limit is None else min(machine, limit)


def _cpu_flags() -> set[str]:
    return set(_cpu_line("flags").split())


def _cpu_line(name: str) -> str:
    """Return the first line of /proc/cpuinfo with this prefix; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(name)), "")
