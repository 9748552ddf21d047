"""`--suite=peers`: ours beside every framework that is installed, each in a process of its own.

For each model and batch all engines train the same batches first; what computes other losses than
PyTorch is not timed, and its line says so. Then they take turns. Records are written after each
model, so that a run that is ended keeps what it has.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pockengine.api import Compiled
from pockengine.backends.peaks import Peaks
from pockengine.backends.placement import kernel_nodes, node_bytes
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.bench.case import Case, make_case
from pockengine.farm.bench.check import LOSS_TOLERANCE, compare, loss_error
from pockengine.farm.bench.start import Start, measure_start
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import (
    Training,
    Worker,
    open_own_worker,
    open_worker,
    why_missing,
)

OURS, OURS_BF16 = "pockengine", "pockengine-bf16"
BF16_TOLERANCE = 2e-2  # of losses: bf16 has eight bits of mantissa
REFERENCE, FULL = "torch-eager", "full"
CHECKED_STEPS = 3
TURN_MS = 400.0  # what an engine's turn should take, as far as one step allows
MOST_STEPS = 8
OTHERS = ("tf-eager", "tf-graph", "tf-xla", "jax-jit")
CONVOLUTIONAL = (
    *("torch-eager", "torch-eager-cl-malloc", "torch-compile-cl-malloc"),
    *(*OTHERS, "ort-training", "mnn-train"),  # their references are written for pictures alone
)
SEQUENTIAL = ("torch-eager", "torch-eager-malloc", "torch-compile-malloc", *OTHERS)
PICTURES = (
    "mobilenet_v2-1.0-224",
    "mobilenet_v2-0.35-128",
    "mcunet-128",
    "resnet50-224",
    "vit_tiny-224",
)
TEXTS = ("distilbert-128", "llama-15m-256")
TRANSFORMERS = ("vit_tiny", "distilbert", "llama")
# The schemes that are compiled beside full: those of the paper, where they have a meaning.
SCHEMES = {"mobilenet_v2-1.0-224": ("full", "bias-only", "last-2-blocks", "sparse")}


@dataclass(frozen=True)
class Line:
    """What one engine came to on one model, batch and scheme. Zero: not measured."""

    engine: str
    version: str
    scheme: str
    timing: Timing
    max_rel_error: float
    peak_rss_bytes: int
    first_step_ms: float

    @property
    def is_ours(self) -> bool:
        """Whether it is no peer."""
        return self.engine in (OURS, OURS_BF16)


@dataclass(frozen=True)
class Work:
    """What a full step must do: operations, bytes, and the milliseconds of its roofline."""

    flops: float = 0.0
    nbytes: int = 0
    roofline_ms: float = 0.0


@dataclass
class SuiteResult:
    """All that one model and batch came to.

    `compiled` are our programs by scheme, `missing` says of engines without a line why, `busy`
    that others used the machine.
    """

    model: str
    batch: int
    work: Work = field(default_factory=Work)
    lines: list[Line] = field(default_factory=list)
    compiled: dict[str, Compiled] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    busy: str | None = None

    @property
    def name(self) -> str:
        """The model and batch, marked where the machine was busy."""
        return f"{self.model} / {self.batch}{' *' if self.busy else ''}"

    @contextlib.contextmanager
    def keeping(self, name: str) -> Iterator[None]:
        """Keep an error as the reason why an engine has no line."""
        try:
            yield
        except PockEngineError as error:
            self.missing[name] = str(error)


@dataclass(frozen=True)
class Measurement:
    """How one model and batch is to be measured; `schemes` are presets or files by name.

    `bf16` adds a line of ours that rounds operands; `tuned` is a file of `pockengine tune`.
    """

    model: str
    batch: int
    engines: tuple[str, ...]
    schemes: Mapping[str, str]
    threads: int
    rounds: int
    peaks: Peaks
    bf16: bool = False
    tuned: Path | None = None


@dataclass(frozen=True)
class Running:
    """A worker that has trained its job rightly, and how it started."""

    worker: Worker
    engine: str
    scheme: str
    training: Training
    error: float
    start: Start


def engines_for(model: str) -> tuple[str, ...]:
    """Return the peers of a model, PyTorch as it comes first."""
    return SEQUENTIAL if model.startswith(TRANSFORMERS) else CONVOLUTIONAL


def batches_for(model: str) -> tuple[int, ...]:
    """Return the batch sizes that a model is measured with."""
    return (1, 4) if model.startswith(TRANSFORMERS) else (1, 8)


def measure(measurement: Measurement, folder: Path) -> SuiteResult:
    """Measure one model and batch; PockEngineError when PyTorch or our full step fails."""
    title = f"{measurement.model}, batch {measurement.batch}"
    with step(f"{title}: data, starting weights, graph"):
        case = make_case(measurement.model, measurement.batch, CHECKED_STEPS, plain=True)
    result = SuiteResult(measurement.model, measurement.batch)
    jobs = {name: case.for_scheme(scheme) for name, scheme in measurement.schemes.items()}
    jobs[FULL] = case.data
    for scheme, data in jobs.items():
        write_job(folder / scheme, data)
    with contextlib.ExitStack() as stack:
        with step(f"{title}: {REFERENCE}, whose numbers the others must reach"):
            reference, expected = _start_reference(measurement, jobs, folder, stack)
        runs = [reference]
        for name, scheme in measurement.schemes.items():
            place, wanted = folder / name, expected[name]
            with result.keeping(f"{OURS} {name}"), step(f"{title}: ours, {name}"):
                compiled = case.compile(scheme, "host", place / "artifact", tuned=measurement.tuned)
                runs.append(
                    _start_ours(measurement, compiled, jobs[name], (name, wanted), place, stack)
                )
                result.compiled[name] = compiled
        if measurement.bf16:
            with result.keeping(OURS_BF16), step(f"{title}: ours, {FULL}, bf16"):
                runs.append(_start_bf16(measurement, case, expected[FULL], folder / FULL, stack))
        for engine in measurement.engines:
            if engine != REFERENCE:
                with result.keeping(engine), step(f"{title}: {engine}"):
                    runs.append(
                        _start_peer(measurement, engine, expected[FULL], folder / FULL, stack)
                    )
        with step(f"{title}: {len(runs)} engines in turn") as running:
            with watching() as load:
                result.lines = _take_turns(measurement, runs, running.say)
            result.busy = load.mark
    if FULL in result.compiled:
        result.work = work_of(result.compiled[FULL].program, measurement.peaks)
    return result


def _start_reference(
    measurement: Measurement, jobs: Mapping[str, JobData], folder: Path, stack: contextlib.ExitStack
) -> tuple[Running, dict[str, Training]]:
    """Start PyTorch and train every scheme's job in it, the full one once more at the end."""
    begin = time.perf_counter()
    worker = stack.enter_context(open_worker(REFERENCE, folder / FULL, measurement.threads))
    opened = 1e3 * (time.perf_counter() - begin)
    first = worker.train()
    expected = {FULL: first}
    for scheme in jobs:
        worker.prepare(folder / scheme, REFERENCE, measurement.threads)
        expected[scheme] = worker.train()
    if list(jobs)[-1] != FULL:
        worker.prepare(folder / FULL, REFERENCE, measurement.threads)
        worker.train()
    start = Start(opened + first.ms[0], 0)
    return Running(worker, REFERENCE, FULL, first, 0.0, start), expected


def _start_ours(
    measurement: Measurement,
    compiled: Compiled,
    data: JobData,
    wanted: tuple[str, Training],
    place: Path,
    stack: contextlib.ExitStack,
) -> Running:
    """Start our worker on a scheme's artifact; FarmError unless losses and tensors are right."""
    scheme, expected = wanted
    start = measure_start(compiled.artifact, data, measurement.threads, place)
    worker = stack.enter_context(
        open_own_worker(compiled.artifact.folder, place, measurement.threads)
    )
    training = worker.train()
    known = {name: x for name, x in training.tensors.items() if name in expected.tensors}
    trained = [name for name in data.job.trainable or () if name in known]
    check = compare(
        training.losses, known, expected.losses, expected.tensors, data.weights, trained
    )
    if check.problems:
        raise FarmError(f"wrong numbers: {'; '.join(check.problems)}")
    return Running(worker, OURS, scheme, training, check.largest, start)


def _start_bf16(
    measurement: Measurement,
    case: Case,
    expected: Training,
    place: Path,
    stack: contextlib.ExitStack,
) -> Running:
    """Start our worker on an artifact that rounds; FarmError unless its losses are near."""
    folder = place / "artifact-bf16"
    compiled = case.compile(FULL, "host", folder, bf16=True, tuned=measurement.tuned)
    start = measure_start(compiled.artifact, case.data, measurement.threads, place)
    worker = stack.enter_context(open_own_worker(folder, place, measurement.threads))
    training = worker.train()
    error = loss_error(training.losses, expected.losses)
    if not error <= BF16_TOLERANCE:
        raise FarmError(f"its losses are off by {error:.1e}, more than rounding explains")
    return Running(worker, OURS_BF16, FULL, training, error, start)


def _start_peer(
    measurement: Measurement,
    engine: str,
    expected: Training,
    folder: Path,
    stack: contextlib.ExitStack,
) -> Running:
    """Start a peer; FarmError when it is not here, or unless its losses are PyTorch's."""
    reason = why_missing(engine)
    if reason:
        raise FarmError(reason)
    begin = time.perf_counter()
    with contextlib.ExitStack() as own:
        worker = own.enter_context(open_worker(engine, folder, measurement.threads))
        opened = 1e3 * (time.perf_counter() - begin)
        training = worker.train()
        error = loss_error(training.losses, expected.losses)
        if not error <= LOSS_TOLERANCE:
            raise FarmError(f"its losses are off by {error:.1e}: it trains something else")
        stack.enter_context(own.pop_all())
    return Running(worker, engine, FULL, training, error, Start(opened + training.ms[0], 0))


def _take_turns(
    measurement: Measurement, runs: list[Running], tell: Callable[[str], None]
) -> list[Line]:
    """Time all engines in turn, slow ones with fewer steps."""
    names = {f"{run.engine} {run.scheme}": run for run in runs}
    steps = {
        name: min(MOST_STEPS, max(1, round(TURN_MS / min(run.training.ms))))
        for name, run in names.items()
    }
    workers = {name: run.worker for name, run in names.items()}
    timings = interleave(workers, measurement.rounds, steps, tell=tell)
    return [
        Line(
            run.engine,
            run.worker.version,
            run.scheme,
            timings[name],
            run.error,
            run.start.peak_rss_bytes or run.worker.peak_rss(),
            run.start.first_step_ms,
        )
        for name, run in names.items()
    ]


def work_of(program: Program, peaks: Peaks) -> Work:
    """Sum the work of a step's kernels up, with the least time of each by the measured peaks."""
    nodes = kernel_nodes(program.entries["train"])
    costs = [(node_cost(node), node_bytes(node)) for node in nodes]
    return Work(
        2.0 * sum(cost for cost, _ in costs),
        sum(nbytes for _, nbytes in costs),
        sum(peaks.least_ns(cost, nbytes) for cost, nbytes in costs) / 1e6,
    )
