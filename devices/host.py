"""What this machine is, as far as kernels care."""

import os
import platform
from pathlib import Path


def detect_isa() -> str:
    """Widest vector extension of this machine that the kernels are written for."""
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return "neon"
    if machine not in ("x86_64", "AMD64"):
        return "scalar"
    flags = _cpu_flags()
    if {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= flags:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= flags else "sse2"


def detect_bf16() -> bool:
    """Whether this machine multiplies pairs of bf16 numbers in the vectors that kernels use."""
    return detect_isa() == "avx512" and "avx512_bf16" in _cpu_flags()


def detect_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
