"""Profile a training step: every kernel of a program, timed in place.

The program is rebuilt with timed calls; the kernels' objects come from the cache. GPU launches are
timed one by one, each from an empty queue to its completion.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.capacity import check_capacity
from pockengine.backends.placement import anchor_op, describe, kernel_nodes, lay_out, node_bytes
from pockengine.backends.protocol import Backend, Progress
from pockengine.backends.weights import write_weights
from pockengine.compiler.ir import Graph, Node
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice
from pockengine.errors import RuntimeFailure, reason_of

RATE = 1e-3
"""Learning rate of the profiled steps: small, so that the data stay typical."""

TIMED = "#define PE_PROFILE 1\n"
"""Head of program.c, which then includes pe_profile.h."""
MARKED = TIMED + "#define PE_PROFILE_MARKS 1\n"
"""Head of program.c if each kernel is a region for an emulator's plugin."""

WEIGHTS, DATA = "weights", "data"
"""The files of a profiled training."""

RunProfile = Callable[[Path, Mapping[str, Path], Sequence[str]], str]
"""Runs a program with files, referenced in braces in its arguments, and returns its output."""


class Timed(Backend, Protocol):
    """A backend that supports builds with timed calls."""

    def timed(self, node: Node, choice: Choice | None = None) -> tuple[str, int]:
        """Return a kernel's symbol, and its number of timed calls."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel call of a step: its times over all steps but the first, and its work.

    Several launches of a kernel are summed. `nbytes` is the traffic if every operand is read and
    every result written once.
    """

    op: str
    symbol: str
    what: str
    node: Node
    samples: int
    least_ns: int
    median_ns: int
    most_ns: int
    multiply_adds: int
    nbytes: int


@dataclass(frozen=True)
class ProfiledStep:
    """A program built for profiling, its files, and its arguments, which name the files."""

    runner: Path
    files: Mapping[str, Path]
    arguments: Sequence[str]

    @property
    def command(self) -> list[str]:
        """The command that runs it on the machine with the files."""
        return [str(self.runner), *(each.format_map(self.files) for each in self.arguments)]


@contextmanager
def profiled_step(
    program: Program,
    backend: Backend,
    inputs: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    steps: int = 20,
    head: str = TIMED,
    progress: Progress | None = None,
) -> Iterator[ProfiledStep]:
    """Build a program whose step is profiled on one repeated batch, in a folder of its own.

    CapacityError if it does not fit the device.
    """
    check_capacity(program, backend.target())
    with tempfile.TemporaryDirectory(prefix="pockengine-profile-") as place:
        folder = Path(place)
        runner = _build(program, backend, folder, head=head, progress=progress)
        files = {name: folder / name for name in (WEIGHTS, DATA)}
        write_weights(lay_out(program).in_file, files[WEIGHTS])
        save_file({key: np.atleast_1d(array) for key, array in inputs.items()}, files[DATA])
        arguments = ["train", "--weights", f"{{{WEIGHTS}}}", "--data", f"{{{DATA}}}"]
        arguments += ["--steps", str(steps), "--lr", str(RATE), "--threads", str(threads)]
        yield ProfiledStep(runner, files, arguments)


def profile_step(
    program: Program,
    backend: Timed,
    inputs: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    steps: int = 20,
    run: RunProfile | None = None,
    progress: Progress | None = None,
) -> list[KernelTime]:
    """Time the kernels of `train`, in order, on one repeated batch.

    By default (`run=None`) on this machine; RuntimeFailure if the program fails.
    """
    with profiled_step(
        program, backend, inputs, threads=threads, steps=steps + 1, progress=progress
    ) as built:
        if run is None:
            printed = _run_here(built)
        else:
            printed = run(built.runner, built.files, built.arguments)
    lines = (json.loads(line) for line in printed.splitlines())
    return list(_times(program, backend, (line for line in lines if "kernel" in line)))


def _build(
    program: Program, backend: Backend, folder: Path, head: str, progress: Progress | None
) -> Path:
    """Build a program that times or marks its kernels; return its runner."""
    code = folder / "code"
    code.mkdir()
    backend.write(program, code)
    text = (code / "program.c").read_text(encoding="utf-8")
    (code / "program.c").write_text(head + text, encoding="utf-8")
    runner = backend.build(code, folder / "bin", progress).executable
    assert runner is not None
    return runner


def _run_here(built: ProfiledStep) -> str:
    try:
        done = subprocess.run(built.command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RuntimeFailure(
            f"this machine cannot run the profiled program: {reason_of(error)}"
        ) from error
    if done.returncode != 0:
        raise RuntimeFailure(f"profiling {built.runner.name}: {done.stderr.strip()}")
    return done.stdout


def _times(
    program: Program, backend: Timed, lines: Iterable[Mapping[str, int]]
) -> Iterator[KernelTime]:
    found = {line["kernel"]: line for line in lines}
    first = 0
    for entry in program.entries.values():
        for node in kernel_nodes(entry):
            symbol, calls = backend.timed(node, entry.choices.get(node))
            own = [found[call] for call in range(first, first + calls) if call in found]
            first += calls
            if own:
                yield KernelTime(
                    op=anchor_op(node) or "elementwise",
                    symbol=symbol,
                    what=describe(node),
                    node=node,
                    samples=min(line["samples"] for line in own),
                    least_ns=sum(line["least_ns"] for line in own),
                    median_ns=sum(line["median_ns"] for line in own),
                    most_ns=sum(line["most_ns"] for line in own),
                    multiply_adds=node_cost(node),
                    nbytes=node_bytes(node),
                )


def example_inputs(train: Graph) -> dict[str, np.ndarray]:
    """Return example data for a step's inputs, except controls."""
    return {value.name: _example(value.type) for value in train.inputs if value.shape}


def _example(type_: TensorType) -> np.ndarray:
    """Return example data of a type: normal numbers, or indices valid in every table."""
    rng = np.random.default_rng(0)
    if type_.dtype is F32:
        return rng.standard_normal(type_.shape).astype(np.float32)
    return rng.integers(0, 2, type_.shape).astype(type_.dtype.numpy)
