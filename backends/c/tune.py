"""Meters of the C tuner: kernels timed alone, on this machine or on a board."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pockengine.backends.c.alone import (
    MOST_BUFFERS,
    bench_program,
    build_bench,
    read_times,
    run_bench,
)
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.build import PARALLEL
from pockengine.backends.native.runtime_files import RUNTIME
from pockengine.backends.native.tuning import (
    BATCH,
    PLANS,
    Figure,
    Meter,
    Planner,
    TuningProblem,
    batches,
    list_problems,
)
from pockengine.backends.picking import Picker
from pockengine.backends.placement import anchor_op
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.devices.schema import Device
from pockengine.errors import RuntimeFailure

TIME_NOISE = 0.02
"""Minimum relative gain, in median and best call, for a plan to win."""

RunBench = Callable[[Path, int], Sequence[Figure]]
"""Runs a benchmark program of this many kernels, and returns their figures."""


def find_problems(
    nodes: Sequence[Node], device: Device, *, bf16: bool = False, plans: int = PLANS
) -> list[TuningProblem]:
    """List the problems of a step's nodes that have more than one plan worth trying."""

    def planner(pick: Picker) -> Planner:
        return CBackend(device, bf16=bf16, pick=pick)

    tried = [
        node
        for node in nodes
        if (op := anchor_op(node)) is not None
        and lookup(op).product
        and len(node.operands) + len(node.results) < MOST_BUFFERS
    ]
    return list_problems(tried, planner, plans, RUNTIME)


def bench_meter(device: Device, run: RunBench, unit: str, noise: float) -> Meter:
    """Return a meter that builds benchmark programs for the device and runs them by `run`."""

    def measure(problems: Sequence[TuningProblem]) -> list[Sequence[Figure]]:
        parts = list(batches(problems, BATCH))
        with tempfile.TemporaryDirectory(prefix="pockengine-tune-") as folder:
            programs = [Path(folder) / f"bench{index}" for index in range(len(parts))]
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(lambda part, to: _build(part, device, to), parts, programs))
            return [
                figures
                for part, program in zip(parts, programs, strict=True)
                for figures in _run(part, program, run)
            ]

    return Meter(unit, noise, measure)


def _build(problems: Sequence[TuningProblem], device: Device, program: Path) -> None:
    pairs = [(kernel, each.node) for each in problems for kernel in each.kernels.values()]
    sizes = ", ".join(str(len(each.kernels)) for each in problems)
    main = f"run_races(benches, (const int[]){{{sizes}}}, {len(problems)}, argc, argv)"
    build_bench(bench_program(pairs, main), device, program)


def _run(
    problems: Sequence[TuningProblem], program: Path, run: RunBench
) -> Iterator[Sequence[Figure]]:
    sizes = [len(problem.kernels) for problem in problems]
    figures = iter(run(program, sum(sizes)))
    for size in sizes:
        yield [next(figures) for _ in range(size)]


def host_meter(device: Device, launcher: Sequence[str] = ()) -> Meter:
    """Return a meter by time on this machine; `launcher` is an optional command prefix."""
    threads = device.cpu.cores

    def run(program: Path, count: int) -> list[Figure]:
        return as_figures(run_bench([*launcher, str(program), str(threads)]), count)

    return bench_meter(device, run, time_unit(device), TIME_NOISE)


def time_unit(device: Device) -> str:
    """Return the unit of times."""
    return f"ns of {device.cpu.cores} threads"


def as_figures(printed: str, count: int) -> list[Figure]:
    """Parse the times of this many kernels, in ns."""
    times = read_times(printed)
    if len(times) != count:
        raise RuntimeFailure(f"the benchmark printed {len(times)} times of {count} kernels")
    return [Figure(1e9 * median, 1e9 * best) for median, best in times]
