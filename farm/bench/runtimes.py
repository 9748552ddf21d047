"""`--suite=runtimes`: our step in C, ONNX Runtime, TFLite and TVM, compared with the frameworks'.

For each scheme every engine first trains the same batches, in its own process: PockEngine must
reach PyTorch's losses and weights, a framework its losses. Then all take turns. An engine that is
not installed, or cannot train the scheme, has a line with the reason.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pockengine.farm.bench.case import Case, make_case
from pockengine.farm.bench.running import (
    OURS,
    Running,
    SchemeJob,
    start_ours,
    start_peer,
    start_runtime,
    take_turns,
)
from pockengine.farm.bench.start import Start
from pockengine.farm.bench.suite import CHECKED_STEPS, FULL, REFERENCE, TRANSFORMERS, SuiteResult
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.job import write_job
from pockengine.farm.references.worker import open_worker
from pockengine.options import CompileOptions

NETS = ("mobilenet_v2-0.35-96", "vit_tiny-64")
BATCH = 4
SCHEMES = ("full", "sparse")
BACKENDS = ("onnx", "tflite", "tvm")
CONVOLUTIONAL = ("torch-eager-cl-malloc", "tf-graph", "ort-training")
SEQUENTIAL = ("torch-eager-malloc", "tf-graph")


@dataclass(frozen=True)
class RuntimesMeasurement:
    """The measurements of one model and batch; `schemes` are presets or files by name.

    `pythons` are interpreters by backend or engine: for those that need an environment apart.
    """

    model: str
    batch: int
    schemes: Mapping[str, str]
    backends: tuple[str, ...]
    engines: tuple[str, ...]
    threads: int
    rounds: int
    pythons: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The model and batch."""
        return f"{self.model}, batch {self.batch}"


def frameworks_for(model: str) -> tuple[str, ...]:
    """Return the frameworks that can train, except plain PyTorch."""
    return SEQUENTIAL if model.startswith(TRANSFORMERS) else CONVOLUTIONAL


def measure_runtimes(measurement: RuntimesMeasurement, folder: Path) -> SuiteResult:
    """Measure one model and batch; FarmError where PyTorch or our C cannot train a scheme."""
    title = measurement.title
    with step(f"{title}: data, starting weights, graph"):
        case = make_case(measurement.model, measurement.batch, CHECKED_STEPS, plain=True)
    result = SuiteResult(case.model, case.batch)
    with contextlib.ExitStack() as stack:
        runs = [
            run
            for name, scheme in measurement.schemes.items()
            for run in _start(
                measurement, case, (name, scheme), place=(result, folder / name), stack=stack
            )
        ]
        with step(f"{title}: {len(runs)} engines in turn") as running:
            with watching() as load:
                result.lines = take_turns(runs, measurement.rounds, running.say)
            result.busy = load.mark
    return result


def _start(
    measurement: RuntimesMeasurement,
    case: Case,
    chosen: tuple[str, str],
    place: tuple[SuiteResult, Path],
    stack: contextlib.ExitStack,
) -> list[Running]:
    """Start every engine on one scheme: PyTorch, ours, and the others that can be started."""
    (name, scheme), (result, folder) = chosen, place
    title = f"{case.model}, {name}"
    with step(f"{title}: {REFERENCE}, whose numbers the others must reach"):
        task, reference = _start_reference(measurement, case, chosen, folder=folder, stack=stack)
    with step(f"{title}: ours in C"):
        compiled = case.compile(CompileOptions(scheme=scheme), folder / "artifact")
        runs = [start_ours(task, compiled.artifact, stack), reference]
        result.compiled[name] = compiled
    for backend in measurement.backends:
        label, python = f"{OURS}-{backend} {name}", measurement.pythons.get(backend)
        with result.keeping(label), step(f"{title}: ours by the backend {backend}"):
            runs.append(
                start_runtime(task, case.graph, scheme, backend=backend, stack=stack, python=python)
            )
    for engine in measurement.engines:
        label, python = f"{engine} {name}", measurement.pythons.get(engine)
        with result.keeping(label), step(f"{title}: {engine}"):
            runs.append(start_peer(task, engine, stack, python))
    return runs


def _start_reference(
    measurement: RuntimesMeasurement,
    case: Case,
    chosen: tuple[str, str],
    folder: Path,
    stack: contextlib.ExitStack,
) -> tuple[SchemeJob, Running]:
    """Train a scheme's job in PyTorch, which all others are compared with."""
    name, scheme = chosen
    data = case.data if name == FULL else case.for_scheme(scheme)
    write_job(folder, data)
    begin = time.perf_counter()
    worker = stack.enter_context(open_worker(REFERENCE, folder, measurement.threads))
    opened = 1e3 * (time.perf_counter() - begin)
    training = worker.train()
    task = SchemeJob(name, data, folder, threads=measurement.threads, expected=training)
    start = Start(opened + training.ms[0], 0)
    return task, Running(worker, REFERENCE, name, training=training, error=0.0, start=start)
