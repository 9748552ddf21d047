"""What this machine can do at most, measured: the roof that kernels and steps are compared with.

A small compiled program times multiply-adds in registers and `y = a + s b` over arrays of several
sizes. Both count by their best sample, since a roof is what was once reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pockengine.backends.c.alone import BENCH, run_bench_program
from pockengine.devices.schema import load_device

CHAINS, ROUNDS, LEAST_BYTES = 12, 32768, 24 << 20
"""As in peak.c: a thread does CHAINS * ROUNDS vector multiply-adds a call; a triad moves at least
LEAST_BYTES, small arrays many times over."""
SIZES = tuple(kib * 1024 for kib in (96, 384, 1536, 6144, 24576, 393216))
"""Bytes of the three arrays of each triad of peak.c; the last is beyond every cache."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Peaks:
    """Arithmetic in GFLOP/s, and GB/s read and written, by the bytes that they go round in."""

    threads: int
    gflops: float
    bandwidths: Mapping[int, float]

    @property
    def gbytes(self) -> float:
        """GB/s of memory itself."""
        return self.bandwidths[max(self.bandwidths)]

    def bandwidth(self, nbytes: int) -> float:
        """GB/s where `nbytes` stay: in a cache when they fit, else in memory."""
        larger = [size for size in self.bandwidths if size >= nbytes]
        return self.bandwidths[min(larger)] if larger else self.gbytes

    def least_ns(self, multiply_adds: int, nbytes: int) -> float:
        """Nanoseconds that so much work takes at least: the roofline."""
        return max(2 * multiply_adds / self.gflops, nbytes / self.bandwidth(nbytes))


def measure_peaks(threads: int) -> Peaks:
    """Measure this machine with so many threads; takes about a second.

    BuildError where the program does not compile, RuntimeFailure where it fails.
    """
    lanes = load_device("host").cpu.vector_bytes // FLOAT_BYTES
    source = (BENCH / "peak.c").read_text(encoding="utf-8")
    times = run_bench_program(source, threads, (f"-DPEAK_LANES={lanes}",))
    best = [fastest for _, fastest in times]
    flops = 2.0 * CHAINS * ROUNDS * lanes * threads
    rates = {
        size: 1e-9 * max(size, LEAST_BYTES) / seconds
        for size, seconds in zip(SIZES, best[1:], strict=True)
    }
    return Peaks(threads, 1e-9 * flops / best[0], _falling(rates))


def _falling(rates: Mapping[int, float]) -> dict[int, float]:
    """Let a size be no slower than a larger one, which noise on this machine may make it."""
    sizes = sorted(rates)
    return {size: max(rates[other] for other in sizes[i:]) for i, size in enumerate(sizes)}


def describe_peaks(peaks: Peaks) -> str:
    """Return one line for people."""
    caches = ", ".join(
        f"{rate:.0f} GB/s in {size >> 10} KiB" for size, rate in list(peaks.bandwidths.items())[:-1]
    )
    return (
        f"measured with {peaks.threads} threads: {peaks.gflops:.0f} GFLOP/s, "
        f"memory {peaks.gbytes:.1f} GB/s ({caches})"
    )
