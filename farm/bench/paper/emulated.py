"""The paper's cells on an emulated board: guest instructions of one thread, a lane per core.

A framework's cells share one emulated process of their lane. Ours are static programs.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from safetensors.numpy import load_file

from pockengine import __version__
from pockengine.backends.artifact import Artifact
from pockengine.devices import load_device
from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.bench.case import to_torch_layout
from pockengine.farm.bench.check import compare
from pockengine.farm.bench.paper.cells import OURS, Cell, PaperPlan, seconds_of
from pockengine.farm.bench.paper.jobs import PaperJobs, PreparedJob
from pockengine.farm.bench.paper.outcome import CellOutcome, CellOutcomes
from pockengine.farm.bench.run import read_losses, train_arguments, write_rows
from pockengine.farm.cycles.core import ModelledBoard, modelled_board, modelled_devices
from pockengine.farm.cycles.modelled import model_digest, model_regions, observer_of, read_cycles
from pockengine.farm.references.guest import GuestProcess, GuestSteps, guest_digest
from pockengine.farm.references.instructions import (
    GUEST,
    check_repeated,
    count,
    emulator_version,
    plugin_library,
)
from pockengine.farm.transports.children import kill_children
from pockengine.options import CompileOptions

METRIC = "guest_instructions"
COUNTED = GuestSteps(warm_up=0, counted=2)
"""The two checked steps warm up."""
KILL_EVERY_S = 0.2
SHORTEST_TIMEOUT = 4 * 3600.0
TIMES_ESTIMATE = 4.0
"""Timeout of a cell, relative to its estimate: machines are slower, and busy."""

Keep = Callable[[Cell, CellOutcome], None]
Fail = Callable[[Cell, str], None]


def timeout_of(cell: Cell) -> float:
    """Return the seconds after which a process that measures a cell is ended."""
    return max(SHORTEST_TIMEOUT, TIMES_ESTIMATE * seconds_of(cell))


class EmulatedBench:
    """Measures a plan's cells on an emulated board; reports outcomes and failures as they come."""

    def __init__(self, plan: PaperPlan, folder: Path, outcomes: CellOutcomes | None = None) -> None:
        """Take the plan and a folder for its files."""
        device = load_device(plan.board.device)
        if device.emulator is None:
            raise FarmError(f"{plan.board.name} is not emulated")
        self.plan, self.folder, self.cpu = plan, folder, device.emulator.cpu
        modelled = plan.board.device in modelled_devices()
        self.model = modelled_board(plan.board.device) if modelled else None
        self.jobs = PaperJobs(plan.cells, folder / "jobs")
        self.outcomes = outcomes or CellOutcomes()
        self.interrupted = threading.Event()

    def run(self, keep: Keep, fail: Fail) -> None:
        """Measure all cells, a lane on each thread; Ctrl-C ends them at once."""
        lanes = self.plan.lanes()
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            futures: list[Future[None]] = []
            try:
                for lane in lanes:
                    futures.append(pool.submit(self._lane, lane, keep, fail))
                for future in futures:
                    future.result()
            except BaseException:
                self.interrupted.set()
                while wait(futures, KILL_EVERY_S).not_done:
                    kill_children()
                raise

    def _lane(self, cells: Sequence[Cell], keep: Keep, fail: Fail) -> None:
        with ExitStack() as stack:
            guests = _Guests(self.folder, self.cpu, stack, self.model)
            for cell in cells:
                if self.interrupted.is_set():
                    return
                try:
                    outcome = self._measured(cell, guests)
                    keep(cell, replace(outcome, note=f"{self.cpu}, {emulator_version()}"))
                except PockEngineError as error:
                    if self.interrupted.is_set():
                        return
                    guests.drop_dead(cell.framework)
                    fail(cell, str(error))
                finally:
                    self.jobs.release(cell)

    def _measured(self, cell: Cell, guests: "_Guests") -> CellOutcome:
        """Return a cell's outcome, from an earlier run if its inputs are the same."""
        job = self.jobs.prepare(cell)
        if cell.engine == OURS:
            return self._ours(cell, job)
        counted = guest_digest(job.data, cell.framework, self.cpu, COUNTED)
        key = counted.encode() + model_digest(self.plan.board.device)
        digest = f"{cell.engine}-{hashlib.sha256(key).hexdigest()[:24]}"
        found = self.outcomes.find(digest)
        if found is None:
            found = self._theirs(cell, job, guests.find(cell.framework))
            self.outcomes.keep(digest, found)
        return found

    def _theirs(self, cell: Cell, job: PreparedJob, process: GuestProcess) -> CellOutcome:
        """Count a framework's steps; the last, with warm caches, has the modelled time."""
        process.worker.timeout = timeout_of(cell)
        figure = process.measure(job.folder, cell.engine, job.losses, COUNTED)
        ms = 0.0
        if self.model is not None:
            ms = self.model.milliseconds(read_cycles(process.observed())[-1].total)
        counts = tuple(map(float, figure.counts))
        return CellOutcome(
            figure.version, METRIC, counts, max_rel_error=figure.max_rel_error, modelled_ms=ms
        )

    def _ours(self, cell: Cell, job: PreparedJob) -> CellOutcome:
        """Compile for the board, train under emulation, compare with PyTorch, and count."""
        place = self.folder / "ours" / job.folder.name
        rows = place / "rows.safetensors"
        options = CompileOptions(scheme=job.scheme, device=self.plan.board.device)
        compiled = job.case.compile(options, place / "artifact")
        write_rows(compiled.artifact, job.data, rows)
        digest = self._digest(compiled.artifact, rows)
        found = self.outcomes.find(digest)
        if found is not None:
            return found
        saved, weights = place / "tuned", str(compiled.artifact.weights)
        arguments = train_arguments(job.data, weights, str(rows), threads=1)
        command = [str(compiled.artifact.executable), *arguments]
        counted = count(
            [*command, "--save", str(saved), "--save-whole"],
            marks=job.data.steps,
            timeout=timeout_of(cell),
            cpu=self.cpu,
        )
        check = compare(
            read_losses(str(cell), counted.stdout.encode()),
            to_torch_layout(compiled.graph, load_file(saved)),
            job.losses,
            expected=job.tensors,
            start=job.data.weights,
            trained=list(job.data.job.trainable or job.tensors),
        )
        if check.problems:
            raise FarmError(f"wrong numbers: {'; '.join(check.problems)}")
        regions, ms = self._repeated(cell, command, job.data.steps)
        check_repeated(command[0], counted.regions, regions)
        size = compiled.artifact.executable.stat().st_size
        found = CellOutcome(
            __version__, METRIC, tuple(map(float, counted.regions)),
            max_rel_error=check.largest, arena_bytes=compiled.artifact.arena_bytes,
            binary_bytes=size, modelled_ms=ms,
        )  # fmt: skip
        self.outcomes.keep(digest, found)
        return found

    def _repeated(
        self, cell: Cell, command: Sequence[str], steps: int
    ) -> tuple[tuple[int, ...], float]:
        """Run again; return the steps' counts and the last one's modelled ms, 0 without a model."""
        timeout = timeout_of(cell)
        if self.model is None:
            counted = count(command, marks=steps, timeout=timeout, cpu=self.cpu)
            return counted.regions, 0.0
        modelled = model_regions(self.plan.board.device, command, steps, timeout=timeout)
        return tuple(step.instructions for step in modelled), modelled[-1].milliseconds

    def _digest(self, artifact: Artifact, rows: Path) -> str:
        """Return the hash of a program, its weights and rows, and of the counter."""
        digest = hashlib.sha256(f"{plugin_library().name} {emulator_version()} {self.cpu}".encode())
        digest.update(model_digest(self.plan.board.device))
        for file in (artifact.executable, artifact.weights, rows):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return f"{OURS}-{GUEST}-{digest.hexdigest()[:24]}"


class _Guests:
    """The emulated processes of one lane, started when they are first needed."""

    def __init__(
        self, folder: Path, cpu: str, stack: ExitStack, model: ModelledBoard | None
    ) -> None:
        self.folder, self.cpu, self._stack, self._model = folder, cpu, stack, model
        self._processes: dict[str, GuestProcess] = {}

    def find(self, framework: str) -> GuestProcess:
        if framework not in self._processes:
            self.folder.mkdir(parents=True, exist_ok=True)
            folder = Path(mkdtemp(prefix=f"{framework}-", dir=self.folder))
            observer = None if self._model is None else observer_of(self._model, folder)
            process = self._stack.enter_context(GuestProcess(framework, folder, self.cpu, observer))
            self._processes[framework] = process
        return self._processes[framework]

    def drop_dead(self, framework: str) -> None:
        """Forget a process that has ended, so that the next cell starts another."""
        process = self._processes.get(framework)
        if process is not None and not process.worker.is_alive:
            del self._processes[framework]
