"""Guest instructions of one training step in an aarch64 framework, under emulation.

The same worker as on this machine runs in an emulated Python with one thread for the work inside an
op; each step is a counted region. The count is a sum over the framework's threads and varies (for
TensorFlow by about 0.3 %), so it is a median. It takes minutes and up to 1.3 GB the first time and
is kept by its content.
"""

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
    emulator_command,
    emulator_version,
    plugin_library,
    read_report,
)
from pockengine.farm.references.job import JobData, write_job
from pockengine.farm.references.worker import Worker
from pockengine.folders import cache_folder

HOW_TO_GET = "run with --reference=tensorflow"
# The checked steps warm up too: by then every function is traced and every buffer allocated.
WARM_UP_STEPS, COUNTED_STEPS = 1, 3
CHECKED_STEPS = 3
TOLERANCE = 1e-4
# A cross entropy near zero is a difference of logits: its rounding goes by their size, not its own.
SMALL_LOSS = 0.1
GUEST_TIMEOUT = 1800.0


@dataclass(frozen=True)
class GuestFramework:
    """Engines of one guest process, and its sources: those that decide instructions, and others."""

    engines: tuple[str, ...]
    worker: str
    measured: tuple[str, ...]


SHARED = (
    "errors.py",
    "farm/references/job.py",
    "farm/references/marks.py",
    "farm/references/serve.py",
    "models/registry.py",
    "models/specs.py",
)
NETS = tuple(f"farm/references/{name}.py" for name in ("layouts", "nets", "transformer_nets"))
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
            *(f"models/{name}.py" for name in ("layers", "mcunet", "mobilenet_v2", "resnet")),
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
        """The median count; with it go min, max and n of `counts`."""
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
    guest = install_guest_python(framework)
    short, wanted = checked_part(data, losses)
    with tempfile.TemporaryDirectory(prefix="pockengine-guest-") as folder:
        figures = _measure(guest, framework, short, wanted, Path(folder))
    file = _result_file(data, framework)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({name: asdict(figure) for name, figure in figures.items()}))
    os.replace(partial, file)
    return figures


def checked_part(data: JobData, losses: Sequence[float]) -> tuple[JobData, list[float]]:
    """Return a job of the steps that are compared before any is counted, and their losses."""
    checked = min(CHECKED_STEPS, data.steps)
    short = replace(data, images=data.images[:checked], labels=data.labels[:checked])
    return short, list(losses[:checked])


def guest_worker(
    guest: GuestPython, module: str, sources: Path, report: Path, cpu: str | None = None
) -> Worker:
    """Start a worker's module in an emulated Python, which counts its marked steps."""
    return Worker(
        [*emulator_command(report, guest.root, cpu=cpu), str(guest.python), "-P", "-m",
         f"pockengine.farm.references.{module}"],
        {
            "PYTHONPATH": os.pathsep.join([str(sources), str(guest.packages)]),
            "PATH": os.environ.get("PATH", os.defpath),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "OMP_NUM_THREADS": "1",
        },
        GUEST_TIMEOUT,
    )  # fmt: skip


def _measure(
    guest: GuestPython, framework: str, data: JobData, losses: Sequence[float], folder: Path
) -> dict[str, GuestFigure]:
    """Run its engines in one emulated process; read the count of each step when it has ended."""
    kind = FRAMEWORKS[framework]
    write_job(folder / "job", data)
    _stage_sources(kind, folder / "sources")
    report = folder / "report"
    worker = guest_worker(guest, kind.worker, folder / "sources", report)
    errors = {}
    with worker:
        for engine in kind.engines:
            with step(f"aarch64 {framework} under emulation: {engine}") as progress:
                errors[engine] = run_engine(worker, folder / "job", engine, losses)
                progress.detail = f"losses within {errors[engine]:.1e} of PyTorch's"
    regions, _ = read_report(report)
    expected = COUNTED_STEPS * len(kind.engines)
    if len(regions) != expected:
        raise FarmError(f"the emulated {framework} marked {len(regions)} steps, not {expected}")
    return {
        engine: GuestFigure(
            engine,
            worker.version,
            emulator_version(),
            regions[index * COUNTED_STEPS : (index + 1) * COUNTED_STEPS],
            errors[engine],
        )
        for index, engine in enumerate(kind.engines)
    }


def run_engine(worker: Worker, job: Path, engine: str, losses: Sequence[float]) -> float:
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
    worker.step(WARM_UP_STEPS)
    worker.marked_steps(COUNTED_STEPS)
    return error


def _stage_sources(kind: GuestFramework, folder: Path) -> None:
    """Copy what the worker imports into a package tree without the project's own __init__ files."""
    project = Path(__file__).parents[2]
    for name in (*SHARED, *kind.measured, f"farm/references/{kind.worker}.py"):
        place = folder / "pockengine" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, place)
        for package in place.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()


def _result_file(data: JobData, framework: str = "tensorflow") -> Path:
    """Return where the figures of such a step are kept: what it computes, and with what."""
    job = data.job
    trainable = None if job.trainable is None else sorted(job.trainable.items())
    project, measured = Path(__file__).parents[2], FRAMEWORKS[framework].measured
    key: list[Any] = [
        job.model, job.classes, data.images.shape[1:], job.batch_norm, bool(job.momentum),
        bool(job.weight_decay), trainable, lock_digest(framework), plugin_library().name,
        emulator_version(), WARM_UP_STEPS, COUNTED_STEPS,
        [hashlib.sha256((project / name).read_bytes()).hexdigest() for name in measured],
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    return cache_folder() / f"guest-{framework}" / "results" / f"{digest}.json"
