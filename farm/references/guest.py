"""Guest instructions of one training step in an aarch64 framework, under emulation.

The same worker as on this machine runs in an emulated Python with one thread for the work inside an
op; each step is a counted region. The count is a sum over the framework's threads and varies (for
TensorFlow by about 0.3 %), so it is a median. It takes minutes and up to 1.3 GB the first time;
results are cached by content.
"""

import ast
import hashlib
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pockengine.errors import FarmError
from pockengine.farm.progress import step
from pockengine.farm.references.guest_install import (
    GuestPython,
    install_guest_python,
    lock_digest,
)
from pockengine.farm.references.instructions import (
    Observer,
    emulator_command,
    emulator_version,
    observed,
    plugin_library,
    read_regions,
    read_report,
)
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.worker import Worker
from pockengine.folders import cache_folder

HOW_TO_GET = "run with --reference=tensorflow"
# The checked steps also warm up: afterwards every function is traced and every buffer allocated.
WARM_UP_STEPS, COUNTED_STEPS = 1, 3
CHECKED_STEPS = 3
TOLERANCE = 1e-4
# A cross entropy near zero is a difference of logits: its rounding error scales with the logits.
SMALL_LOSS = 0.1
GUEST_TIMEOUT = 7200.0  # seconds; ResNet-50 takes over 30 minutes beside other work


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class GuestSteps:
    """Steps after the checked ones: for warm-up, and counted."""

    warm_up: int = WARM_UP_STEPS
    counted: int = COUNTED_STEPS


STEPS = GuestSteps()


@dataclass(frozen=True)
class GuestFramework:
    """Engines of one guest process, and its sources: those that decide instructions, and others."""

    engines: tuple[str, ...]
    worker: str
    measured: tuple[str, ...]


SHARED = (
    "errors.py",
    "farm/references/engines.py",
    "farm/references/job.py",
    "farm/references/marks.py",
    "farm/references/serve.py",
    "models/registry.py",
    "models/specs.py",
)
NETS = tuple(f"farm/references/{name}.py" for name in ("layouts", "nets", "transformer_nets"))
TORCH_NETS = ("language", "layers", "mcunet", "mobilenet_v2", "resnet", "vit")
FRAMEWORKS = {
    "tensorflow": GuestFramework(
        ("tf-eager", "tf-graph"),
        "tensorflow_worker",
        (
            *NETS,
            "farm/references/keras_models.py",
            "farm/references/tensorflow_arrays.py",
            "farm/references/tensorflow_reference.py",
        ),
    ),
    "torch": GuestFramework(
        ("torch-eager",),
        "torch_worker",
        (
            "farm/references/torch_reference.py",
            *(f"models/{name}.py" for name in TORCH_NETS),
        ),
    ),
    "mnn": GuestFramework(
        ("mnn-train",), "mnn_worker", (*NETS, "farm/references/mnn_reference.py")
    ),
}


@dataclass(frozen=True)
class GuestFigure:
    """Instructions per training step of an engine on an emulated Cortex-A72 (not cycles).

    `max_rel_error` is that of its losses against PyTorch's, over the first steps.
    """

    engine: str
    version: str
    emulator: str
    counts: tuple[int, ...]
    max_rel_error: float

    @property
    def median(self) -> float:
        """The median count, with min, max and n of `counts`."""
        return statistics.median(self.counts)


def cached_guest(data: JobData, framework: str = "tensorflow") -> dict[str, GuestFigure] | None:
    """Return the figures of an earlier run of the same model, batch size and versions, or None."""
    try:
        report = json.loads(_result_file(data, framework).read_text())
        return {
            name: GuestFigure(**{**figure, "counts": tuple(figure["counts"])})
            for name, figure in report.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # absent, or of another version: it can be measured again


def measure_guest(
    data: JobData, losses: Sequence[float], framework: str = "tensorflow"
) -> dict[str, GuestFigure]:
    """Return the figures by engine, measured unless they are cached already.

    `losses` are PyTorch's of this machine for the job's batches: a framework whose losses differ by
    more than 1e-4 trains something else, and is a FarmError instead of a figure.
    """
    cached = cached_guest(data, framework)
    if cached is not None:
        return cached
    short, expected = checked_part(data, losses)
    with tempfile.TemporaryDirectory(prefix="pockengine-guest-") as folder:
        figures = _measure(framework, short, expected, Path(folder))
    file = _result_file(data, framework)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({name: asdict(figure) for name, figure in figures.items()}))
    os.replace(partial, file)
    return figures


def checked_part(data: JobData, losses: Sequence[float]) -> tuple[JobData, list[float]]:
    """Return the checked steps of a job, and their losses."""
    checked = min(CHECKED_STEPS, data.steps)
    short = replace(data, images=data.images[:checked], labels=data.labels[:checked])
    return short, list(losses[:checked])


def guest_worker(
    guest: GuestPython,
    module: str,
    sources: Path,
    report: Path,
    cpu: str | None = None,
    observer: Observer | None = None,
) -> Worker:
    """Start a worker's module in an emulated Python, which counts its marked steps."""
    emulator = emulator_command(report, guest.root, cpu=cpu, observer=observer)
    return Worker(
        [*emulator, str(guest.python), "-P", "-m",
         f"pockengine.farm.references.{module}"],
        {
            "PYTHONPATH": os.pathsep.join([str(sources), str(guest.packages)]),
            "PATH": os.environ.get("PATH", os.defpath),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "OMP_NUM_THREADS": "1",
        },
        GUEST_TIMEOUT,
    )  # fmt: skip


class GuestProcess:
    """A framework in one emulated process, for any number of jobs; a context manager that ends it.

    Importing a framework takes minutes under emulation, so one process serves all jobs.
    """

    def __init__(
        self,
        framework: str,
        folder: Path,
        cpu: str | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Start it; install it first if it is missing; `folder` is for its sources and report.

        An observer sees the counted steps.
        """
        kind = FRAMEWORKS[framework]
        self.framework, self.report = framework, folder / "report"
        guest = install_guest_python(framework)
        _stage_sources(kind, folder / "sources")
        self.worker = guest_worker(
            guest,
            kind.worker,
            folder / "sources",
            report=self.report,
            cpu=cpu,
            observer=observer,
        )

    def observed(self) -> tuple[str, ...]:
        """Return the lines that the observer has added so far."""
        return observed(self.report)

    def measure(
        self, job: Path, engine: str, losses: Sequence[float], steps: GuestSteps = STEPS
    ) -> GuestFigure:
        """Return an engine's figure on a written job; FarmError unless its losses are right."""
        before = len(read_regions(self.report))
        error = run_engine(self.worker, job, engine, losses=losses, steps=steps)
        counts = read_regions(self.report)[before:]
        if len(counts) != steps.counted:
            raise FarmError(
                f"the emulated {self.framework} marked {len(counts)} steps, not {steps.counted}"
            )
        return GuestFigure(
            engine, self.worker.version, emulator_version(), counts=counts, max_rel_error=error
        )

    def __enter__(self) -> "GuestProcess":
        """Return itself: it runs already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.worker.close()


def _measure(
    framework: str, data: JobData, losses: Sequence[float], folder: Path
) -> dict[str, GuestFigure]:
    """Run a framework's engines in one emulated process."""
    write_job(folder / "job", data)
    figures = {}
    with GuestProcess(framework, folder) as process:
        for engine in FRAMEWORKS[framework].engines:
            with step(f"aarch64 {framework} under emulation: {engine}") as progress:
                figure = process.measure(folder / "job", engine, losses)
                progress.detail = f"losses within {figure.max_rel_error:.1e} of PyTorch's"
            figures[engine] = figure
    read_report(process.report)  # which says what went wrong with the count
    return figures


def run_engine(
    worker: Worker, job: Path, engine: str, losses: Sequence[float], steps: GuestSteps = STEPS
) -> float:
    """Check an engine's losses, then do its counted steps; return the largest relative error."""
    worker.prepare(job, engine, threads=1)
    trained = worker.train().losses
    pairs = zip(trained, losses, strict=True)
    error = max(abs(a - b) / max(abs(b), SMALL_LOSS) for a, b in pairs)
    if not error <= TOLERANCE:
        raise FarmError(
            f"{engine} on aarch64 computes losses {trained}, PyTorch {list(losses)}: a relative "
            f"error of {error:.1e} where {TOLERANCE:g} is allowed; its figure would mean nothing"
        )
    if steps.warm_up:
        worker.step(steps.warm_up)
    worker.marked_steps(steps.counted)
    return error


def _stage_sources(kind: GuestFramework, folder: Path) -> None:
    """Copy the worker's imports into a package tree without the project's own __init__ files."""
    project = Path(__file__).parents[2]
    for name in (*SHARED, *kind.measured, f"farm/references/{kind.worker}.py"):
        place = folder / "pockengine" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, place)
        for package in place.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()


def _result_file(data: JobData, framework: str = "tensorflow") -> Path:
    """Return the cache file of a step's figures, named by everything they depend on."""
    digest = guest_digest(data, framework)
    return cache_folder() / f"guest-{framework}" / "results" / f"{digest}.json"


def code_digest(source: str) -> str:
    """Return the hash of a module's code: without its comments, docstrings and line breaks."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def guest_digest(
    data: JobData, framework: str, cpu: str | None = None, steps: GuestSteps = STEPS
) -> str:
    """Return the hash of everything that determines a framework's instructions on a job."""
    job = data.job
    trainable = None if job.trainable is None else sorted(job.trainable.items())
    project, measured = Path(__file__).parents[2], FRAMEWORKS[framework].measured
    key: list[Any] = [
        job.model, job.classes, data.images.shape[1:], job.batch_norm, bool(job.momentum),
        bool(job.weight_decay), trainable, lock_digest(framework), plugin_library().name,
        emulator_version(), steps.warm_up, steps.counted, cpu,
        [code_digest((project / name).read_text(encoding="utf-8")) for name in measured],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
