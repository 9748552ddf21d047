"""Peak performance of a machine: the roofline for kernels and steps."""

from collections.abc import Mapping
from dataclasses import dataclass

MOST_SHARE = 1.05
"""Maximum share of a peak that is printed: the error of measuring both."""

ABOVE = f"> {100 * MOST_SHARE:.0f} %"
"""Printed by tables for a larger share."""

WHY_ABOVE = (
    f"{ABOVE} cannot be: the machine was busy while its peaks were measured (run it again), or "
    "Winograd's method multiplies less than is counted"
)


@dataclass(frozen=True)
class Peaks:
    """Arithmetic in GFLOP/s, and bandwidth in GB/s by working set in bytes.

    `threads` is the number that measured it; 0 if the figures are from a device file.
    """

    threads: int
    gflops: float
    bandwidths: Mapping[int, float]

    @property
    def gbytes(self) -> float:
        """GB/s of main memory."""
        return self.bandwidths[max(self.bandwidths)]

    def bandwidth(self, nbytes: int) -> float:
        """GB/s for a working set of `nbytes`: that of a cache if it fits, else of main memory."""
        larger = [size for size in self.bandwidths if size >= nbytes]
        return self.bandwidths[min(larger)] if larger else self.gbytes

    def least_ns(self, multiply_adds: int, nbytes: int) -> float:
        """Minimum nanoseconds for this much work: the roofline."""
        return max(2 * multiply_adds / self.gflops, nbytes / self.bandwidth(nbytes))


def share_text(part: float, peak: float) -> str:
    """Return a share of a peak in percent, or `ABOVE` for one that cannot be."""
    return ABOVE if part > MOST_SHARE * peak else f"{100 * part / peak:.0f} %"


def describe_peaks(peaks: Peaks) -> str:
    """Return a one-line description."""
    if peaks.threads == 0:
        return f"by its device's file {peaks.gflops:,.0f} GFLOP/s, memory {peaks.gbytes:.1f} GB/s"
    caches = ", ".join(
        f"{rate:.0f} GB/s in {size >> 10} KiB" for size, rate in list(peaks.bandwidths.items())[:-1]
    )
    return (
        f"measured with {peaks.threads} threads: {peaks.gflops:.0f} GFLOP/s, "
        f"memory {peaks.gbytes:.1f} GB/s ({caches})"
    )
