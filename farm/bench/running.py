"""Engines of a suite, each in its own process: started, checked, timed in turn.

An engine whose losses differ from PyTorch's is an error instead of a line: a wrong engine has no
speed.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.artifact import Artifact
from pockengine.compiler.ir import Graph
from pockengine.errors import FarmError
from pockengine.farm.bench.check import LOSS_TOLERANCE, compare, loss_error
from pockengine.farm.bench.start import Start, measure_start
from pockengine.farm.references.engines import find_engine, find_runtime
from pockengine.farm.references.job import JobData
from pockengine.farm.references.own_compile import Request, write_request
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import (
    TrainingResult,
    Worker,
    compile_by_worker,
    open_own_worker,
    open_worker,
    why_missing,
    why_runtime_missing,
)

OURS, OURS_BF16 = "pockengine", "pockengine-bf16"
BF16_TOLERANCE = 2e-2  # of losses: bf16 has eight bits of mantissa
TURN_MS = 400.0  # target duration of an engine's turn, at least one step
MOST_STEPS = 8


@dataclass(frozen=True)
class Line:
    """An engine's results on one model, batch and scheme. Zero: not measured."""

    engine: str
    version: str
    scheme: str
    timing: Timing
    max_rel_error: float
    peak_rss_bytes: int
    first_step_ms: float
    file_bytes: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether it is not a peer."""
        return self.engine in (OURS, OURS_BF16)


@dataclass(frozen=True)
class SchemeJob:
    """A scheme's job, the folder that it is written in, and PyTorch's results."""

    scheme: str
    data: JobData
    folder: Path
    threads: int
    expected: TrainingResult


@dataclass(frozen=True)
class Running:
    """A worker that has trained its job rightly, and how it started."""

    worker: Worker
    engine: str
    scheme: str
    training: TrainingResult
    error: float
    start: Start


def start_ours(task: SchemeJob, artifact: Artifact, stack: ExitStack) -> Running:
    """Start our worker on a scheme's artifact; FarmError unless losses and tensors are right."""
    start = measure_start(artifact, task.data, task.threads, task.folder)
    worker = stack.enter_context(open_own_worker(artifact.folder, task.folder, task.threads))
    training = worker.train()
    return Running(
        worker, OURS, task.scheme, training=training, error=checked(task, training), start=start
    )


def start_runtime(
    task: SchemeJob,
    graph: Graph,
    scheme: str,
    backend: str,
    stack: ExitStack,
    python: str | None = None,
) -> Running:
    """Have a runtime's worker compile and train our step; FarmError unless its numbers are right.

    `python` is an interpreter that has the runtime, if this one lacks it.
    """
    reason = None if python else why_runtime_missing(backend)
    if reason:
        raise FarmError(reason)
    job, folder = task.data.job, task.folder / backend
    artifact = folder / "artifact"
    request = Request(
        backend,
        "host",
        scheme,
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        artifact=str(artifact),
    )
    write_request(folder, graph, request)
    compile_by_worker(folder, backend, python)
    begin = time.perf_counter()
    with ExitStack() as own:
        opened = open_own_worker(
            artifact, task.folder, task.threads, backend=backend, python=python
        )
        worker = own.enter_context(opened)
        prepared = 1e3 * (time.perf_counter() - begin)
        training = worker.train()
        error = checked(task, training)
        stack.enter_context(own.pop_all())
    engine = find_runtime(backend).engine
    start = Start(prepared + training.ms[0], 0)
    return Running(worker, engine, task.scheme, training=training, error=error, start=start)


def start_bf16(task: SchemeJob, artifact: Artifact, stack: ExitStack) -> Running:
    """Start our worker on an artifact that rounds; FarmError unless its losses are near."""
    start = measure_start(artifact, task.data, task.threads, task.folder)
    worker = stack.enter_context(open_own_worker(artifact.folder, task.folder, task.threads))
    training = worker.train()
    error = loss_error(training.losses, task.expected.losses)
    if not error <= BF16_TOLERANCE:
        raise FarmError(f"its losses are off by {error:.1e}, more than rounding explains")
    return Running(worker, OURS_BF16, task.scheme, training=training, error=error, start=start)


def start_peer(
    task: SchemeJob, engine: str, stack: ExitStack, python: str | None = None
) -> Running:
    """Start a peer; FarmError when it is not here, or unless its losses are PyTorch's.

    `python` is an interpreter that has it, if this one lacks it.
    """
    reason = None if python else why_missing(find_engine(engine))
    if reason:
        raise FarmError(reason)
    begin = time.perf_counter()
    with ExitStack() as own:
        worker = own.enter_context(open_worker(engine, task.folder, task.threads, python))
        opened = 1e3 * (time.perf_counter() - begin)
        training = worker.train()
        error = loss_error(training.losses, task.expected.losses)
        if not error <= LOSS_TOLERANCE:
            raise FarmError(f"its losses are off by {error:.1e}: it trains something else")
        stack.enter_context(own.pop_all())
    start = Start(opened + training.ms[0], 0)
    return Running(worker, engine, task.scheme, training=training, error=error, start=start)


def checked(task: SchemeJob, training: TrainingResult) -> float:
    """Compare a PockEngine training with PyTorch's; FarmError where losses or tensors are wrong."""
    expected, data = task.expected, task.data
    known = {name: x for name, x in training.tensors.items() if name in expected.tensors}
    trained = [name for name in data.job.trainable or () if name in known]
    check = compare(
        training.losses,
        known,
        expected.losses,
        expected=expected.tensors,
        start=data.weights,
        trained=trained,
    )
    if check.problems:
        raise FarmError(f"wrong numbers: {'; '.join(check.problems)}")
    return check.largest


def take_turns(runs: Sequence[Running], rounds: int, tell: Callable[[str], None]) -> list[Line]:
    """Time all engines in turn, slow ones with fewer steps."""
    names = {f"{run.engine} {run.scheme}": run for run in runs}
    steps = {
        name: min(MOST_STEPS, max(1, round(TURN_MS / min(run.training.ms))))
        for name, run in names.items()
    }
    workers = {name: run.worker for name, run in names.items()}
    timings = interleave(workers, rounds, steps, tell=tell)
    return [
        Line(
            run.engine,
            run.worker.version,
            run.scheme,
            timing=timings[name],
            max_rel_error=run.error,
            peak_rss_bytes=run.start.peak_rss_bytes or run.worker.peak_rss(),
            first_step_ms=run.start.first_step_ms,
            file_bytes=run.worker.file_bytes,
        )
        for name, run in names.items()
    ]
