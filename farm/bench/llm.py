"""`--suite=llm`: a decoder's fine-tuning by PyTorch, by PEFT and by ours; whole, LoRA and sparse.

Each engine first trains the same batches in its own process: ours must reach PyTorch's losses of
the same scheme, from the same weights, adapters and decoded 4 bits; otherwise it is not timed. Then
those that fit into memory together take turns. Peak memory is of each engine's own process, ours of
the runner, as a device has it.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.compiled import Compiled
from pockengine.compiler.storage import EXACT, Storage
from pockengine.errors import FarmError, JobFailed, PockEngineError
from pockengine.farm.bench.check import LOSS_TOLERANCE, loss_error
from pockengine.farm.bench.llm_case import RATE, LmCase, make_lm_case
from pockengine.farm.load import free_bytes, watching
from pockengine.farm.progress import step
from pockengine.farm.references.engines import Engine, find_lm_engine
from pockengine.farm.references.lm_job import LmData, LmJob, write_lm_job
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import Worker, open_lm_worker, why_missing

OURS, TORCH, PEFT = "pockengine", "torch-eager", "peft"
MLX = ("mlx", "mlx-bf16")
FULL, LORA, SPARSE = "full", "lora", "sparse"
FORMS = {
    OURS: (EXACT, False),
    f"{OURS}-bf16": (Storage(weights="bf16"), True),
    f"{OURS}-int4": (Storage(weights="int4"), False),
    f"{OURS}-8bit": (Storage(states="8bit"), False),
}
"""Ours: how frozen weights and AdamW's states are stored, and whether products round their operands
to bf16."""
PEERS = {
    FULL: (TORCH, "torch-eager-malloc", "torch-compile-malloc", "torch-eager-bf16-malloc", *MLX),
    LORA: (PEFT, "peft-malloc", "peft-bf16-malloc", *MLX),
    SPARSE: (TORCH, "torch-eager-malloc", *MLX),
}
"""Each scheme's engines, the one whose losses count first; of others those of `sparse`."""
CHECKED_STEPS = 3
"""Whose losses must agree to LOSS_TOLERANCE; AdamW divides rounding by rounding, so that later ones
drift apart in any two engines."""
DRIFT_TOLERANCE, ROUNDED_TOLERANCE = 1e-2, 2e-2
TURN_MS, MOST_STEPS, LONG_MS = 400.0, 8, 2000.0
SHARE = 0.8
"""Share of the free memory for the engines that take turns."""
BYTES_TRAINED, BYTES = 16, 4
"""Of a parameter in PyTorch's AdamW: itself, its gradient, two moments; of a frozen one."""
PEAK_STEPS = 2


@dataclass(frozen=True)
class LlmMeasurement:
    """The measurements of one model and shape; `engines` are those of records, `model` a folder."""

    model: str
    batch: int
    length: int
    schemes: tuple[str, ...]
    engines: tuple[str, ...]
    threads: int
    rounds: int
    steps: int

    @property
    def title(self) -> str:
        """The model and shape."""
        return f"{self.model}, {self.batch} x {self.length}"


@dataclass(frozen=True)
class LlmLine:
    """An engine's results on a scheme: `losses` are of all steps, zero bytes not measured."""

    engine: str
    version: str
    scheme: str
    losses: tuple[float, ...]
    error: float
    peak_rss_bytes: int
    timing: Timing
    arena_bytes: int = 0


@dataclass
class LlmResult:
    """All results of one model and shape; `missing` has the reasons of engines without a line."""

    model: str
    batch: int
    length: int
    lines: list[LlmLine] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    groups: int = 1
    busy: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.length

    @contextlib.contextmanager
    def keeping(self, name: str) -> Iterator[None]:
        """Keep an error as the reason why an engine has no line."""
        try:
            yield
        except PockEngineError as error:
            self.missing[name] = str(error)


@dataclass(frozen=True)
class Runner:
    """How to restart an engine, and the results of its checked training."""

    engine: Engine
    scheme: str
    job: Path
    opens: str
    version: str
    losses: tuple[float, ...]
    ms: tuple[float, ...]
    peak: int
    error: float = 0.0
    arena_bytes: int = 0

    @property
    def name(self) -> str:
        """Its name in turns."""
        return f"{self.engine.name} {self.scheme}"


def measure_llm(measurement: LlmMeasurement, folder: Path) -> LlmResult:
    """Measure one model and shape; FarmError if none of it can be trained."""
    title = measurement.title
    with step(f"{title}: weights, tokens, graph"):
        shape = (measurement.batch, measurement.length)
        case = make_lm_case(measurement.model, shape, measurement.steps, folder / "model")
    result = LlmResult(case.name, *shape)
    runners = [
        runner
        for scheme in measurement.schemes
        for runner in _Scheme(measurement, case, scheme, folder=folder, result=result).trained()
    ]
    if not runners:
        reasons = "; ".join(f"{name}: {why}" for name, why in result.missing.items())
        raise FarmError(f"nothing of {title} was measured: {reasons}")
    groups = in_memory([runner.peak for runner in runners], int(SHARE * free_bytes()))
    result.groups = len(groups)
    with watching() as load:
        for number, group in enumerate(groups, 1):
            with step(f"{title}: {len(group)} engines in turn ({number} of {len(groups)})"):
                chosen = [runners[place] for place in group]
                result.lines += _timed(chosen, measurement)
    result.busy = load.mark
    return result


@dataclass(frozen=True)
class _Scheme:
    """One scheme's engines, each of which trains all batches and ends."""

    measurement: LlmMeasurement
    case: LmCase
    scheme: str
    folder: Path
    result: LlmResult

    def trained(self) -> list[Runner]:
        """Train with the reference, then with all others."""
        place = self.folder / self.scheme
        title = f"{self.case.name}, {self.scheme}"
        compiled: dict[str, Compiled] = {}
        for engine in self._own():
            with (
                self.result.keeping(f"{engine} {self.scheme}"),
                step(f"{title}: {engine}: compiles"),
            ):
                compiled[engine] = self._compiled(engine, place / engine)
        if not compiled and self.scheme == LORA:
            return []
        job = self._job(next(iter(compiled.values()), None), place)
        whole = LmData(job, self.case.tokens)
        write_lm_job(place / "job", whole)
        reference, *others = self._peers
        with step(f"{title}: {reference}, whose losses the others must reach"):
            first = self._run(reference, place / "job")
        runners = [first]
        for engine, made in compiled.items():
            with self.result.keeping(f"{engine} {self.scheme}"), step(f"{title}: {engine}"):
                runners.append(self._ours(engine, made, (whole, first), place))
        for engine in (name for name in others if self._is_requested(name)):
            with self.result.keeping(f"{engine} {self.scheme}"), step(f"{title}: {engine}"):
                runner = self._run(engine, place / "job")
                runners.append(_checked(runner, first.losses, runner.engine.dtype == "bf16"))
        return runners

    @property
    def _peers(self) -> tuple[str, ...]:
        return PEERS.get(self.scheme, PEERS[SPARSE])

    def _is_requested(self, engine: str) -> bool:
        return not self.measurement.engines or engine in self.measurement.engines

    def _own(self) -> list[str]:
        """Ours: a full training has no frozen weights to store small."""
        forms = {name: self._form(name) for name in FORMS if self._is_requested(name)}
        return [name for name, form in forms.items() if name == OURS or form != FORMS[OURS]]

    def _form(self, engine: str) -> tuple[Storage, bool]:
        storage, bf16 = FORMS[engine]
        return (replace(storage, weights="f32"), bf16) if self.scheme == FULL else (storage, bf16)

    def _compiled(self, engine: str, place: Path) -> Compiled:
        return self.case.compile(self.scheme, *self._form(engine), place)

    def _job(self, compiled: Compiled | None, place: Path) -> LmJob:
        model = str(self.case.folder.resolve())
        if self.scheme == FULL:
            return LmJob(model, RATE)
        if self.scheme != LORA or compiled is None:
            return LmJob(model, RATE, trainable=self.case.trained(self.scheme))
        with compiled.session(1) as session:
            compiled.save_adapters(session, place / "adapters")
        return LmJob(model, RATE, adapters=str((place / "adapters").resolve()))

    def _ours(
        self, engine: str, compiled: Compiled, expected: tuple[LmData, Runner], place: Path
    ) -> Runner:
        """Train by our worker, compare, and take the runner's memory."""
        (data, reference), artifact = expected, compiled.artifact
        losses = reference.losses
        storage, bf16 = self._form(engine)
        if storage.weights == "int4":
            losses = self._of_decoded(data, compiled, place / f"{engine}-decoded")
        runner = self._run(engine, place / "job", str(artifact.folder))
        runner = _checked(runner, losses, bf16 or storage.states != "f32")
        peak = peak_of(compiled, data, self.measurement.threads, place / f"{engine}.safetensors")
        return replace(runner, peak=peak, arena_bytes=artifact.arena_bytes)

    def _of_decoded(self, data: LmData, compiled: Compiled, place: Path) -> tuple[float, ...]:
        """Return PyTorch's first losses with the weights rounded to 4 bits."""
        model = self.case.decoded(compiled.artifact, place / "model")
        job = replace(data.job, model=str(model.resolve()))
        write_lm_job(place / "job", LmData(job, data.tokens[:CHECKED_STEPS]))
        name = self._peers[0]
        losses = self._run(name, place / "job").losses
        (model / "model.safetensors").unlink()
        return losses

    def _run(self, name: str, job: Path, opens: str = "") -> Runner:
        """Train all batches of a job; FarmError where an engine is missing or would not fit."""
        engine = find_lm_engine(name)
        if not opens:
            self._check_possible(engine)
        with open_lm_worker(engine, job, self.measurement.threads, opens) as worker:
            training, version = worker.train(), worker.version
            peak = worker.peak_rss()
        return Runner(
            engine,
            scheme=self.scheme,
            job=job,
            opens=opens,
            version=version,
            losses=tuple(training.losses),
            ms=tuple(training.ms),
            peak=peak,
        )

    def _check_possible(self, engine: Engine) -> None:
        reason = why_missing(engine)
        if reason:
            raise FarmError(reason)
        params, graph = self.case.parameters, self.case.graph
        trained = params
        if self.scheme != FULL:
            names = self.case.trained(self.scheme)
            trained = sum(graph.params[name].value.type.size for name in names)
        needed, free = BYTES_TRAINED * trained + BYTES * (params - trained), free_bytes()
        if needed > free:
            raise FarmError(
                f"{engine.name} takes {needed / 1e9:.1f} GB for weights, gradients and states "
                f"alone, and {free / 1e9:.1f} GB are free"
            )


def _checked(runner: Runner, losses: Sequence[float], rounds: bool) -> Runner:
    """Compare losses with PyTorch's; FarmError if they differ."""
    found = runner.losses[: len(losses)]
    error = loss_error(found[:CHECKED_STEPS], losses[:CHECKED_STEPS])
    drift = loss_error(found, losses)
    near, far = (ROUNDED_TOLERANCE,) * 2 if rounds else (LOSS_TOLERANCE, DRIFT_TOLERANCE)
    if not (error <= near and drift <= far):
        raise FarmError(
            f"its losses are off by {error:.1e} in the first {CHECKED_STEPS} steps and by "
            f"{drift:.1e} in all: it trains something else"
        )
    return replace(runner, error=drift)


def _timed(runners: Sequence[Runner], measurement: LlmMeasurement) -> list[LlmLine]:
    """Time engines in turns, each in a fresh worker."""
    steps = {
        runner.name: min(MOST_STEPS, max(1, round(TURN_MS / min(runner.ms)))) for runner in runners
    }
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {
            runner.name: stack.enter_context(
                open_lm_worker(runner.engine, runner.job, measurement.threads, runner.opens)
            )
            for runner in runners
        }
        warm_up = 1 if min(min(runner.ms) for runner in runners) < LONG_MS else 0
        timings = interleave(workers, measurement.rounds, steps, warm_up)
    return [
        LlmLine(
            runner.engine.name,
            runner.version,
            runner.scheme,
            losses=runner.losses,
            error=runner.error,
            peak_rss_bytes=runner.peak,
            timing=timings[runner.name],
            arena_bytes=runner.arena_bytes,
        )
        for runner in runners
    ]


def peak_of(compiled: Compiled, data: LmData, threads: int, rows: Path) -> int:
    """Run the artifact's own program for some steps; return its highest resident memory."""
    artifact = compiled.artifact
    batches = [data.inputs(index % data.steps) for index in range(PEAK_STEPS)]
    save_file({name: np.concatenate([x[name] for x in batches]) for name in batches[0]}, rows)
    command = [
        *(str(artifact.executable), "train", "--weights", str(artifact.weights)),
        *("--data", str(rows), "--steps", str(PEAK_STEPS), "--lr", repr(data.job.learning_rate)),
        *("--threads", str(threads)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise JobFailed(f"{artifact.name}: {done.stderr.strip()[-500:]}")
    return int(json.loads(done.stdout.splitlines()[-1])["peak_rss_bytes"])


def in_memory(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Put engines, by their places, into as few groups as fit into `limit` bytes, in order."""
    groups: list[list[int]] = []
    left = 0
    for place, size in enumerate(sizes):
        if not groups or size > left:
            groups.append([])
            left = limit
        groups[-1].append(place)
        left -= size
    return groups
