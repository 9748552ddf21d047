"""Choose a device's backend automatically: `backend="auto"`.

Candidates are the backends that the device supports, except emulated ones. If the device is this
machine, each compiles the program and makes first steps on random data, whose losses must equal
those of the first candidate (usually C). All are then timed by further steps, interleaved and in
one thread, the default of sessions. The artifacts are temporary; no user weights are trained.

Any other device is not measured. The C backend's model estimates the cycles: of its own fused
kernels, and for a runtime with unknown kernels, of the same nodes one by one. That is a lower bound
of a runtime's memory traffic and ignores the quality of its kernels. A GPU, whose cycles are not
comparable, is left out.

Time is bounded: steps run for `SECONDS`, and after `BUILDING` seconds of building no further
candidate is started.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.drawn_inputs import draw_inputs
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.protocol import Backend, BackendOptions, Progress
from pockengine.backends.registry import (
    backend_for,
    is_accelerated,
    is_emulated,
    open_session,
)
from pockengine.backends.session import Session
from pockengine.backends.switching_report import (
    MEASURED,
    MODELLED,
    BackendCandidate,
    Switching,
    settle,
)
from pockengine.backends.within_budget import within_budget
from pockengine.compiler.program import Entry, Program
from pockengine.devices.schema import Device
from pockengine.errors import CompileError, PockEngineError

AUTO = "auto"
"""Value of `backend` for automatic choice."""

STEPS, RATE, TOLERANCE = 2, 2.0**-10, 1e-3
"""Number of first steps whose losses are compared, their rate, and the tolerance relative to C:
sums in another order, and a few flipped comparisons.
"""

SECONDS, ROUNDS, BUILDING = 10.0, 30, 120.0

Build = Callable[..., Program]
"""Compiles for `target`."""


@dataclass
class _Trial:
    """A running candidate: its session, its first losses, and the seconds of its steps."""

    session: Session
    losses: list[float]
    seconds: list[float] = field(default_factory=list)


def choose_backend(
    build: Build, device: Device, options: BackendOptions, progress: Progress | None = None
) -> Switching:
    """Choose among the device's backends; CompileError if none can be used, with reasons."""
    named = [device.on(name) for name in (device.backend, *device.other_backends)]
    devices = [each for each in named if each == device or not is_emulated(each)]
    if _is_here(device):
        unit, rows = MEASURED, _measured(build, devices, options, progress)
    else:
        unit, rows = MODELLED, _modelled(build, devices, options)
    try:
        return settle(unit, rows)
    except ValueError as error:
        reasons = "; ".join(f"{row.backend}: {row.left_out}" for row in rows)
        raise CompileError(f"{device.name} has no backend for this program: {reasons}") from error


def _is_here(device: Device) -> bool:
    """Whether code compiled for the device runs on this machine."""
    return device.compiler is not None and device.compiler.target == "native"


def _measured(
    build: Build, devices: Sequence[Device], options: BackendOptions, progress: Progress | None
) -> list[BackendCandidate]:
    """Measure the candidates on this machine."""
    trials: dict[str, _Trial] = {}
    reasons: dict[str, str] = {}
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pockengine-auto-")))
        feed: dict[str, np.ndarray] = {}
        for device in devices:
            name = device.backend
            if trials and time.monotonic() - started > BUILDING:
                reasons[name] = f"not tried: the others took more than {BUILDING:.0f} s to build"
                continue
            if progress is not None:
                progress(f"trying the backend {name}")
            try:
                program, artifact = _built(build, backend_for(device, options), folder / name)
                feed = feed or draw_inputs(_train_entry(program).graph)
                session = stack.enter_context(open_session(artifact))
                trials[name] = _Trial(session, [_step(session, feed) for _ in range(STEPS)])
                _compare(trials)
            except PockEngineError as error:
                trials.pop(name, None)
                reasons[name] = str(error)
        _time(list(trials.values()), feed)
    return [_row(device.backend, trials, reasons) for device in devices]


def _built(build: Build, backend: Backend, place: Path) -> tuple[Program, Artifact]:
    program, backend = within_budget(build, backend)
    return program, write_artifact(program, backend, place)


def _train_entry(program: Program) -> Entry:
    """Return the entry of a step: the largest variant of a variable size."""
    sizes = program.sizes
    return program.entries["train" if sizes is None else sizes.entry("train", sizes.high)]


def _step(session: Session, feed: Mapping[str, np.ndarray]) -> float:
    """Run a step; return its loss, or the sum of its outputs."""
    results = session.train_step(feed, RATE)
    compared = [results["loss"]] if "loss" in results else list(results.values())
    return float(sum(array.sum(dtype=np.float64) for array in compared))


def _compare(trials: Mapping[str, _Trial]) -> None:
    """Raise CompileError if the last candidate's losses differ from the first's."""
    (reference, first), *_ = trials.items()
    *_, last = trials.values()
    if not np.allclose(last.losses, first.losses, rtol=TOLERANCE, atol=0, equal_nan=True):
        raise CompileError(
            f"the losses of its first steps are {last.losses}, those of {reference} {first.losses}"
        )


def _time(trials: Sequence[_Trial], feed: Mapping[str, np.ndarray]) -> None:
    """Run steps in turns, each candidate at least once, until the time or the count is reached."""
    started = time.monotonic()
    for number in range(ROUNDS):
        if number and time.monotonic() - started > SECONDS:
            return
        for trial in trials:
            before = time.perf_counter()
            _step(trial.session, feed)
            trial.seconds.append(time.perf_counter() - before)


def _row(name: str, trials: Mapping[str, _Trial], reasons: Mapping[str, str]) -> BackendCandidate:
    if name not in trials:
        return BackendCandidate(name, None, reasons[name])
    return BackendCandidate(name, 1e3 * statistics.median(trials[name].seconds))


def _modelled(
    build: Build, devices: Sequence[Device], options: BackendOptions
) -> list[BackendCandidate]:
    """Estimate the candidates with the C backend's cycle model."""
    rows = []
    for device in devices:
        name = device.backend
        if is_accelerated(device):
            rows.append(
                BackendCandidate(name, None, "a GPU is measured where it is, and not modelled")
            )
            continue
        try:
            program, backend = within_budget(build, backend_for(device, options))
            entry = _train_entry(program)
            rows.append(BackendCandidate(name, sum(_cycles(entry, backend))))
        except PockEngineError as error:
            rows.append(BackendCandidate(name, None, str(error)))
    return rows


def _cycles(entry: Entry, backend: Backend) -> Iterator[float]:
    """Yield the cycles of an entry's nodes; CompileError for one without a C kernel."""
    device = backend.device
    model = backend if device.backend == "c" else backend_for(replace(device, backend="c"))
    for node in kernel_nodes(entry):
        yield model.choose(node).cycles
