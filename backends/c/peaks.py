"""What this machine can do at most, measured by a small program of C.

It times multiply-adds in registers and `y = a + s b` over arrays of several
sizes. Both count by their best sample, since a roof is what was once reached.
"""

from collections.abc import Mapping

from pockengine.backends.c.alone import BENCH, run_bench_program
from pockengine.backends.peaks import Peaks
from pockengine.devices.schema import load_device

CHAINS, ROUNDS, LEAST_BYTES = 12, 32768, 24 << 20
"""As in peak.c: a thread does CHAINS * ROUNDS vector multiply-adds a call; a triad moves at least
LEAST_BYTES, small arrays many times over."""
SIZES = tuple(kib * 1024 for kib in (96, 384, 1536, 6144, 24576, 393216))
"""Bytes of the three arrays of each triad of peak.c; the last is beyond every cache."""
FLOAT_BYTES = 4


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
