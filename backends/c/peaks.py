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
RUNS, ATTEMPTS = 3, 3
"""Runs of the program, one second each: on a shared core, others may take half the time for
tenths of a second. While threads share a core, every run is slow: then all are repeated.
"""
LEAST_SHARE = 0.4
"""Minimum rate of a thread beside the others, of that alone: two on one core with SMT have half.
Two that take turns on a core have a quarter, as each waits for the other at barriers.
"""
FLOAT_BYTES = 4


def measure_peaks(threads: int) -> Peaks:
    """Measure this machine with this many threads; takes about four seconds.

    BuildError if the program does not compile, RuntimeFailure if it fails.
    """
    device = load_device("host")
    lanes = device.cpu.vector_bytes // FLOAT_BYTES
    source = (BENCH / "peak.c").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="pockengine-peaks-") as folder:
        program = Path(folder) / "peak"
        build_bench(source, device, program, (f"-DPEAK_LANES={lanes}",))
        alone = _best(program, 1, 1)[0]
        for _ in range(ATTEMPTS):
            best = _best(program, threads, RUNS)
            if alone >= LEAST_SHARE * best[0]:
                break
    flops = 2.0 * CHAINS * ROUNDS * lanes * threads
    rates = {
        size: 1e-9 * max(size, LEAST_BYTES) / seconds
        for size, seconds in zip(SIZES, best[1:], strict=True)
    }
    return Peaks(threads, 1e-9 * flops / best[0], _falling(rates))


def _best(program: Path, threads: int, runs: int) -> list[float]:
    """Return the least seconds of each measurement, from some runs of the program."""
    samples = [read_times(run_bench([str(program), str(threads)])) for _ in range(runs)]
    return [min(fastest for _, fastest in each) for each in zip(*samples, strict=True)]


def _falling(rates: Mapping[int, float]) -> dict[int, float]:
    """Make bandwidth nonincreasing in size, which noise may violate."""
    sizes = sorted(rates)
    return {size: max(rates[other] for other in sizes[i:]) for i, size in enumerate(sizes)}
