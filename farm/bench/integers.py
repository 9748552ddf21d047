"""A job in int8 on a board, compared with the oracle, whose first step is compared with PyTorch's.

Trained integers must equal the oracle's bit for bit; an optimizer's integer states are rounded real
numbers, and may differ by one. Values that stay f32 (losses, biases, other states)
have the bounds of runs in f32. The oracle's own first step must be near that of PyTorch in
f32 with frozen batch norms: its loss, and the direction in which what is trained and real moves.
Later steps of a net in int8 and one in f32 drift apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pockengine.compiled import Compiled
from pockengine.compiler.controls import RATE
from pockengine.compiler.ir.evaluate import run as evaluate
from pockengine.compiler.ir.graph import ParamKind
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.case import to_torch_layout, train_in_torch
from pockengine.farm.bench.check import SMALL_LOSS, Check, compare
from pockengine.farm.bench.run import BoardRun, firmware_run, train_on_board
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.firmware.run import Steps, train_firmware
from pockengine.farm.references.job import JobData
from pockengine.farm.transports.transport import Progress, Transport

Arrays = dict[str, np.ndarray]

INT8_LOSS_TOLERANCE, LEAST_COSINE = 0.1, 0.95
"""Of the first step. MobileNetV2 and V3, MCUNet, ResNet-20 and the small CNN are within 0.033 and
above 0.987, whatever trains."""


def kinds(int8: bool, board: Board) -> tuple[bool, ...]:
    """Return whether to train in int8, in f32, or in both: f32 is added to int8 if possible.

    FarmError for this machine, on which engines are timed that have no int8.
    """
    if not int8:
        return (False,)
    if isinstance(board.place, Local):
        raise FarmError(f"--int8 is for boards, real or emulated, not for {board.name}; leave it")
    return (True,) if load_device(board.device).freestanding else (False, True)


def train_integers(
    transport: Transport,
    compiled: Compiled,
    data: JobData,
    threads: int,
    folder: Path,
    progress: Progress | None = None,
) -> BoardRun:
    """Run all steps of a job: as firmware on a microcontroller, else by the runner."""
    if not load_device(compiled.artifact.device).freestanding:
        return train_on_board(
            transport, compiled.artifact, data, threads=threads, folder=folder, progress=progress
        )
    steps = Steps(integer_batches(compiled, data), data.job.learning_rate)
    run = train_firmware(transport, compiled.artifact, steps, folder=folder, progress=progress)
    return firmware_run(run)


def integer_batches(compiled: Compiled, data: JobData) -> list[Arrays]:
    """Return the inputs of each step, pictures as the integers that the program takes."""
    names = [name for name in compiled.artifact.entries["train"].inputs if name != RATE]
    rows = zip(data.images, data.labels, strict=True)
    return [dict(compiled.integers(dict(zip(names, row, strict=True)))) for row in rows]


def check_integers(compiled: Compiled, data: JobData, run: BoardRun) -> tuple[list[float], Check]:
    """Train in the oracle and compare; return its losses too."""
    step = compiled.program.entries["train"].graph
    start = {name: param.data.copy() for name, param in step.params.items()}
    losses, state, moved = _oracle(compiled, data, start)
    real = {name for name, array in state.items() if array.dtype.kind == "f"}
    found, expected, first = (_part(arrays, real) for arrays in (run.tensors, state, start))
    trained = [name for name in real if np.any(expected[name] != first[name])]
    check = compare(run.losses, found, losses, expected=expected, start=first, trained=trained)
    wrong = [
        name
        for name, param in step.params.items()
        if name not in real
        and _apart(run.tensors[name], state[name]) > int(param.kind is ParamKind.OPTIMIZER)
    ]
    problems = [f"integers of {name} are not the oracle's" for name in wrong[:1]]
    near = FloatStep.of(compiled, data, losses[0], moved)
    error = max(check.weight_error, float(bool(wrong)))
    all_problems = (*check.problems, *problems, *near.problems())
    return losses, Check(
        check.loss_error, error, check.change_error, problems=all_problems, note=str(near)
    )


def _oracle(compiled: Compiled, data: JobData, start: Arrays) -> tuple[list[float], Arrays, Arrays]:
    """Return the losses of the oracle, its last state, and the changes of its first step."""
    step = compiled.program.entries["train"].graph
    state = {name: array.copy() for name, array in start.items()}
    rate = np.asarray(data.job.learning_rate, np.float32)
    losses, moved = [], {}
    for batch in integer_batches(compiled, data):
        losses.append(float(evaluate(step, {**batch, RATE: rate}, state)["loss"]))
        if len(losses) == 1:
            moved = {x: state[x] - start[x] for x in start if start[x].dtype.kind == "f"}
    return losses, state, moved


@dataclass(frozen=True)
class FloatStep:
    """How near the first step in int8 is to PyTorch's in f32, whose batch norms are frozen.

    `loss_error` is relative, `cosine` that of the changes of trained tensors that stay real.
    """

    loss_error: float
    cosine: float

    @classmethod
    def of(cls, compiled: Compiled, data: JobData, loss: float, moved: Arrays) -> "FloatStep":
        """Do the first step in PyTorch, and compare."""
        job = replace(data.job, batch_norm="frozen")
        first = replace(data, job=job, images=data.images[:1], labels=data.labels[:1])
        (expected,), tensors = train_in_torch(first)
        ours = to_torch_layout(compiled.graph, moved)
        trained = [x for x in job.trainable or ours if x in ours and x in tensors]
        own = np.concatenate([ours[x].ravel() for x in trained] or [np.zeros(0)])
        theirs = [(tensors[x] - data.weights[x]).ravel() for x in trained]
        cosine = _cosine(own, np.concatenate(theirs or [np.zeros(0)]))
        return cls(abs(loss - expected) / max(abs(expected), SMALL_LOSS), cosine)

    def problems(self) -> list[str]:
        """Return the tensors too far from PyTorch; NaN counts as too far."""
        found = []
        if not self.loss_error <= INT8_LOSS_TOLERANCE:
            allowed = f"where {INT8_LOSS_TOLERANCE:g} is allowed"
            found.append(
                f"the first loss is off PyTorch's in f32 by {self.loss_error:.1e} {allowed}"
            )
        if not self.cosine >= LEAST_COSINE:
            found.append(
                f"the first update turns away from PyTorch's in f32: their cosine is "
                f"{self.cosine:.3f} where {LEAST_COSINE:g} is the least"
            )
        return found

    def __str__(self) -> str:
        return (
            f"first step beside PyTorch's in f32 with frozen norms: loss within "
            f"{self.loss_error:.1%}, cosine of the updates {self.cosine:.4f}"
        )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine of two vectors; 1 where nothing is compared or both are zero."""
    norms = float(np.linalg.norm(one.astype(np.float64)) * np.linalg.norm(other.astype(np.float64)))
    if norms == 0:
        return float(not np.any(one) and not np.any(other))
    return float(one.astype(np.float64) @ other.astype(np.float64)) / norms


def _part(arrays: Mapping[str, np.ndarray], names: set[str]) -> Arrays:
    return {name: array for name, array in arrays.items() if name in names}


def _apart(one: np.ndarray, other: np.ndarray) -> int:
    """Return the largest difference of integers."""
    return int(np.abs(one.astype(np.int64) - other).max(initial=0))
