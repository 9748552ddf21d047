"""Speed of our step, PyTorch's and TensorFlow's on this machine, or in instructions on another.

On this machine every engine runs in a process of its own, in turn, with the same job and threads.
For an emulated board time means nothing; instructions of one thread between two marks do compare.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pockengine import __version__
from pockengine.backends.artifact import Artifact
from pockengine.compiler.ir import Graph
from pockengine.devices import load_device
from pockengine.devices.isa import COUNTERS
from pockengine.errors import FarmError
from pockengine.farm.bench.check import LOSS_TOLERANCE, loss_error
from pockengine.farm.bench.run import train_arguments, write_rows
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.guest import (
    FRAMEWORKS,
    HOW_TO_GET,
    GuestFigure,
    cached_guest,
    measure_guest,
)
from pockengine.farm.references.guest_runtimes import measure_guest_runtime
from pockengine.farm.references.instructions import GUEST, count
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.own_compile import Request, write_request
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import (
    Refused,
    Worker,
    compile_by_worker,
    is_available,
    open_own_worker,
    open_worker,
    why_runtime_missing,
)

OURS = "pockengine"
# Default PyTorch, PyTorch's fastest mode here, and TensorFlow; its eager mode is 8 times slower.
HOST_ENGINES = ("torch-eager", "torch-eager-cl-malloc", "tf-graph")
ROUNDS, STEPS_A_TURN = 5, 5
COUNTED_STEPS = 2


@dataclass(frozen=True)
class Measured:
    """An engine's step on one job; `timing` is of `metric`. Zero bytes: not measured."""

    engine: str
    version: str
    metric: str
    timing: Timing
    max_rel_error: float | None = None
    peak_rss_bytes: int = 0


class HostPeers:
    """Worker processes of this machine's engines, started once and used for every scheme."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.missing = [engine for engine in HOST_ENGINES if not is_available(find_engine(engine))]
        self.refused: dict[str, str] = {}
        self._workers: dict[str, Worker] = {}
        self._stack = ExitStack()

    def measure(
        self, artifact: Artifact, data: JobData, losses: Sequence[float], folder: Path
    ) -> list[Measured]:
        """Time ours and every engine that is here, in turn; `losses` are the right ones.

        Engines without a form of the job are skipped, and `refused` says why. FarmError when an
        engine trains something else.
        """
        write_job(folder, data)
        with open_own_worker(artifact.folder, folder, self.threads) as own:
            workers = {OURS: own}
            errors: dict[str, float | None] = {OURS: None}
            for engine in HOST_ENGINES:
                if engine in self.missing:
                    continue
                try:
                    worker = self._prepared(engine, folder)
                except Refused as error:
                    self.refused[engine] = error.reason
                    continue
                errors[engine], workers[engine] = _checked(engine, worker, losses), worker
            timings = interleave(workers, ROUNDS, STEPS_A_TURN)
            return [
                Measured(
                    name,
                    worker.version,
                    "step_ms",
                    timing=timings[name],
                    max_rel_error=errors[name],
                    peak_rss_bytes=0 if name == OURS else worker.peak_rss(),
                )
                for name, worker in workers.items()
            ]

    def close(self) -> None:
        """End the workers."""
        self._stack.close()

    def _prepared(self, engine: str, folder: Path) -> Worker:
        if engine in self._workers:
            self._workers[engine].prepare(folder, engine, self.threads)
        else:
            worker = self._stack.enter_context(open_worker(engine, folder, self.threads))
            self._workers[engine] = worker
        return self._workers[engine]


def counted_steps(instructions: Sequence[int]) -> Measured | None:
    """Return what firmware counted of its own steps; None for a run that counted nothing."""
    if not instructions:
        return None
    timing = Timing.of([float(count) for count in instructions])
    return Measured(OURS, __version__, "guest_instructions", timing)


def few_steps(artifact: Artifact, data: JobData, folder: Path) -> list[str]:
    """Return the command that trains COUNTED_STEPS steps on one thread, from rows in `folder`."""
    short = replace(data, images=data.images[:COUNTED_STEPS], labels=data.labels[:COUNTED_STEPS])
    rows = folder / "counted.safetensors"
    write_rows(artifact, short, rows)
    arguments = train_arguments(short, str(artifact.weights), str(rows), threads=1)
    return [str(artifact.executable), *arguments]


def count_regions(artifact: Artifact, command: Sequence[str]) -> tuple[int, ...]:
    """Count the instructions, or a DSP's packets, of each step of a single-threaded command."""
    device = load_device(artifact.device)
    arch, emulator = device.cpu.arch, device.emulator
    cpu = emulator.cpu if emulator and arch == GUEST else None
    return count(command, marks=COUNTED_STEPS, arch=arch, cpu=cpu).regions


def counted_regions(artifact: Artifact, regions: Sequence[int]) -> Measured:
    """Return the figure of a step's counts."""
    timing = Timing.of([float(region) for region in regions])
    unit = COUNTERS[load_device(artifact.device).cpu.arch].unit
    return Measured(OURS, __version__, f"guest_{unit}", timing)


def count_peers(
    data: JobData, losses: Sequence[float], measured: Sequence[str]
) -> tuple[list[Measured], dict[str, str]]:
    """Return the instructions of aarch64 frameworks, and why one of them has none.

    Those in `measured` are measured now, which takes minutes; for the others cached figures are
    used.
    """
    figures_by_engine: dict[str, GuestFigure] = {}
    missing = {}
    for framework in FRAMEWORKS:
        try:
            measures = framework in measured
            figures = measure_guest(data, losses, framework) if measures else None
            figures_by_engine |= figures or cached_guest(data, framework) or {}
        except FarmError as error:
            missing[framework] = str(error)
    return [measured_guest(figure) for figure in figures_by_engine.values()], missing


def measured_guest(figure: GuestFigure) -> Measured:
    """Return a bench's records of an emulated engine."""
    timing = Timing.of([float(count) for count in figure.counts])
    named = (figure.engine, figure.version, "guest_instructions")
    return Measured(*named, timing, figure.max_rel_error)


@dataclass(frozen=True)
class InRuntime:
    """A scheme's job, to be compiled by another backend for a board and counted there."""

    backend: str
    device: str
    scheme: str
    graph: Graph
    data: JobData
    python: str | None = None

    def count(self, losses: Sequence[float], folder: Path) -> Measured:
        """Compile and count; FarmError if the runtime or its wheel is unavailable."""
        reason = None if self.python else why_runtime_missing(self.backend)
        if reason:
            raise FarmError(reason)
        artifact, job = folder / "artifact", self.data.job
        request = Request(
            self.backend,
            self.device,
            self.scheme,
            momentum=job.momentum,
            weight_decay=job.weight_decay,
            artifact=str(artifact),
        )
        write_request(folder, self.graph, request)
        compile_by_worker(folder, self.backend, self.python)
        figure = measure_guest_runtime(
            self.backend, self.device, artifact, data=self.data, losses=losses
        )
        return measured_guest(figure)


def what_is_missing(without: Sequence[str], missing: Sequence[str]) -> str | None:
    """Return the missing engines and how to install them; None if all are there.

    `without` are the schemes that have no aarch64 TensorFlow beside them, `missing` the engines
    that are not installed on this machine.
    """
    if without:
        schemes = ", ".join(without)
        return f"No aarch64 TensorFlow beside {schemes}: {HOW_TO_GET} (minutes, once)."
    if missing:
        return f"Not installed, so not compared: {', '.join(missing)}; pip install their packages."
    return None


def _checked(engine: str, worker: Worker, losses: Sequence[float]) -> float:
    """Train the job once in a reference; FarmError unless its losses are PyTorch's."""
    error = loss_error(worker.train().losses, losses)
    if not error <= LOSS_TOLERANCE:
        raise FarmError(
            f"{engine} computes other losses than PyTorch, off by {error:.1e}; "
            "its speed would mean nothing"
        )
    return error
