"""What a machine can do at most: the roof that kernels and steps are compared with."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Arithmetic in GFLOP/s, and GB/s read and written, by the bytes that they go round in.

    `threads` are those that measured it; 0 where a device's file says so.
    """

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


def describe_peaks(peaks: Peaks) -> str:
    """Return one line for people."""
    if peaks.threads == 0:
        return f"by its device's file {peaks.gflops:,.0f} GFLOP/s, memory {peaks.gbytes:.1f} GB/s"
    caches = ", ".join(
        f"{rate:.0f} GB/s in {size >> 10} KiB" for size, rate in list(peaks.bandwidths.items())[:-1]
    )
    return (
        f"measured with {peaks.threads} threads: {peaks.gflops:.0f} GFLOP/s, "
        f"memory {peaks.gbytes:.1f} GB/s ({caches})"
    )
