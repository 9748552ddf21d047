"""Peak performance of this machine, measured by a small C program.

It times multiply-adds in registers and `y = a + s b` over arrays of several sizes. Both use their
best sample, as a roofline is an upper bound.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from pockengine.backends.c.alone import BENCH, build_bench, read_times, run_bench
from pockengine.backends.peaks import Peaks
from pockengine.devices.schema import load_device

CHAINS, ROUNDS, LEAST_BYTES = 12, 32768, 24 << 20
"""As in peak.c: per call a thread does CHAINS * ROUNDS vector multiply-adds; a triad moves at
least LEAST_BYTES, repeating small arrays.
"""
SIZES = tuple(kib * 1024 for kib in (96, 384, 1536, 6144, 24576, 393216))
"""Bytes of the three arrays of each triad of peak.c; the last is beyond every cache."""
RUNS = 3
"""Runs of the program, one second each: on a shared core, others may take half the time for
tenths of a second.
"""
FLOAT_BYTES = 4


def measure_peaks(threads: int) -> Peaks:
    """Measure this machine with this many threads; takes about three seconds.

    BuildError if the program does not compile, RuntimeFailure if it fails.
    """
    device = load_device("host")
    lanes = device.cpu.vector_bytes // FLOAT_BYTES
    source = (BENCH / "peak.c").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="pockengine-peaks-") as folder:
        program = Path(folder) / "peak"
        build_bench(source, device, program, (f"-DPEAK_LANES={lanes}",))
        runs = [read_times(run_bench([str(program), str(threads)])) for _ in range(RUNS)]
    best = [min(fastest for _, fastest in samples) for samples in zip(*runs, strict=True)]
    flops = 2.0 * CHAINS * ROUNDS * lanes * threads
    rates = {
        size: 1e-9 * max(size, LEAST_BYTES) / seconds
        for size, seconds in zip(SIZES, best[1:], strict=True)
    }
    return Peaks(threads, 1e-9 * flops / best[0], _falling(rates))


def _falling(rates: Mapping[int, float]) -> dict[int, float]:
    """Make bandwidth nonincreasing in size, which noise may violate."""
    sizes = sorted(rates)
    return {size: max(rates[other] for other in sizes[i:]) for i, size in enumerate(sizes)}
