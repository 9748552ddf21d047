"""`--suite=peers`: our step and every installed framework's, each in its own process.

For each model and batch all engines train the same batches first; an engine with other losses than
PyTorch is not timed, and its line notes that. Then they take turns. Records are written after each
model, so an interrupted run keeps its results.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pockengine.backends.peaks import Peaks
from pockengine.backends.placement import kernel_nodes, node_bytes
from pockengine.compiled import Compiled
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.errors import PockEngineError
from pockengine.farm.bench.case import make_case
from pockengine.farm.bench.running import (
    OURS,
    OURS_BF16,
    Line,
    Running,
    SchemeJob,
    start_bf16,
    start_ours,
    start_peer,
    take_turns,
)
from pockengine.farm.bench.start import Start
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.worker import open_worker
from pockengine.options import CompileOptions

REFERENCE, FULL = "torch-eager", "full"
CHECKED_STEPS = 3
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
class Work:
    """The work of a full step: operations, bytes, and the milliseconds of its roofline."""

    flops: float = 0.0
    nbytes: int = 0
    roofline_ms: float = 0.0


@dataclass
class SuiteResult:
    """All results of one model and batch.

    `compiled` are our programs by scheme, `missing` the reasons of engines without a line, `busy`
    whether others used the machine.
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

    `bf16` adds a line for PockEngine that rounds operands; `tuned` is a file of `pockengine tune`.
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

    @property
    def title(self) -> str:
        """The model and batch."""
        return f"{self.model}, batch {self.batch}"


def engines_for(model: str) -> tuple[str, ...]:
    """Return the peers of a model, PyTorch as it comes first."""
    return SEQUENTIAL if model.startswith(TRANSFORMERS) else CONVOLUTIONAL


def batches_for(model: str) -> tuple[int, ...]:
    """Return the batch sizes that a model is measured with."""
    return (1, 4) if model.startswith(TRANSFORMERS) else (1, 8)


def measure(measurement: Measurement, folder: Path) -> SuiteResult:
    """Measure one model and batch; PockEngineError when PyTorch or our full step fails."""
    title = measurement.title
    with step(f"{title}: data, starting weights, graph"):
        case = make_case(measurement.model, measurement.batch, CHECKED_STEPS, plain=True)
    result = SuiteResult(measurement.model, measurement.batch)
    jobs = {name: case.for_scheme(scheme) for name, scheme in measurement.schemes.items()}
    jobs[FULL], tuned = case.data, measurement.tuned
    for scheme, data in jobs.items():
        write_job(folder / scheme, data)
    with contextlib.ExitStack() as stack:
        with step(f"{title}: {REFERENCE}, whose numbers the others must reach"):
            reference, tasks = _start_reference(measurement, jobs, folder, stack)
        runs = [reference]
        for name, scheme in measurement.schemes.items():
            with result.keeping(f"{OURS} {name}"), step(f"{title}: ours, {name}"):
                place = folder / name / "artifact"
                compiled = case.compile(CompileOptions(scheme=scheme, tuned=tuned), place)
                runs.append(start_ours(tasks[name], compiled.artifact, stack))
                result.compiled[name] = compiled
        if measurement.bf16:
            with result.keeping(OURS_BF16), step(f"{title}: ours, {FULL}, bf16"):
                place = folder / FULL / "artifact-bf16"
                compiled = case.compile(CompileOptions(bf16=True, tuned=tuned), place)
                runs.append(start_bf16(tasks[FULL], compiled.artifact, stack))
        for engine in measurement.engines:
            if engine != REFERENCE:
                with result.keeping(engine), step(f"{title}: {engine}"):
                    runs.append(start_peer(tasks[FULL], engine, stack))
        with step(f"{title}: {len(runs)} engines in turn") as running:
            with watching() as load:
                result.lines = take_turns(runs, measurement.rounds, running.say)
            result.busy = load.mark
    if FULL in result.compiled:
        result.work = work_of(result.compiled[FULL].program, measurement.peaks)
    return result


def _start_reference(
    measurement: Measurement, jobs: Mapping[str, JobData], folder: Path, stack: contextlib.ExitStack
) -> tuple[Running, dict[str, SchemeJob]]:
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
    tasks = {
        name: SchemeJob(
            name, data, folder / name, threads=measurement.threads, expected=expected[name]
        )
        for name, data in jobs.items()
    }
    return Running(worker, REFERENCE, FULL, training=first, error=0.0, start=start), tasks


def work_of(program: Program, peaks: Peaks) -> Work:
    """Sum the work of a step's kernels up, with the least time of each by the measured peaks."""
    nodes = kernel_nodes(program.entries["train"])
    costs = [(node_cost(node), node_bytes(node)) for node in nodes]
    return Work(
        2.0 * sum(cost for cost, _ in costs),
        sum(nbytes for _, nbytes in costs),
        sum(peaks.least_ns(cost, nbytes) for cost, nbytes in costs) / 1e6,
    )
