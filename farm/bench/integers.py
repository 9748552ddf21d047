"""A job in int8 on a board, beside the oracle in place of PyTorch.

The integers that training leaves must be the oracle's, bit for bit; those that an optimiser keeps
are a real number rounded, and may be one apart. What stays real (losses, biases, other states) is
held to the bounds of runs in f32.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pockengine.api import Compiled
from pockengine.backends.session import RATE
from pockengine.compiler.ir.evaluate import run as evaluate
from pockengine.compiler.ir.graph import ParamKind
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.check import Check, compare
from pockengine.farm.bench.run import BoardRun, train_on_board
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.firmware.run import Steps, train_firmware
from pockengine.farm.references.job import JobData
from pockengine.farm.transports.transport import Progress, Transport

Arrays = dict[str, np.ndarray]


def kinds(int8: bool, board: Board) -> tuple[bool, ...]:
    """Return whether to train in int8, in f32, or in both: f32 stands beside int8 where it can.

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
        return train_on_board(transport, compiled.artifact, data, threads, folder, progress)
    steps = Steps(integer_batches(compiled, data), data.job.learning_rate)
    run = train_firmware(transport, compiled.artifact, steps, folder, progress)
    sizes = run.firmware.memory_bytes, run.firmware.flash_bytes
    return BoardRun(run.losses, [], run.tensors, *sizes, tuple(run.instructions))


def integer_batches(compiled: Compiled, data: JobData) -> list[Arrays]:
    """Return the inputs of each step, pictures as the integers that the program takes."""
    names = [name for name in compiled.artifact.entries["train"].inputs if name != RATE]
    rows = zip(data.images, data.labels, strict=True)
    return [dict(compiled.integers(dict(zip(names, row, strict=True)))) for row in rows]


def check_integers(compiled: Compiled, data: JobData, run: BoardRun) -> tuple[list[float], Check]:
    """Train in the oracle and compare; return its losses too."""
    step = compiled.program.entries["train"].graph
    start = {name: param.data.copy() for name, param in step.params.items()}
    state = {name: array.copy() for name, array in start.items()}
    rate = np.asarray(data.job.learning_rate, np.float32)
    losses = [
        float(evaluate(step, {**batch, RATE: rate}, state)["loss"])
        for batch in integer_batches(compiled, data)
    ]
    real = {name for name, array in state.items() if array.dtype.kind == "f"}
    found, wanted, first = (_part(arrays, real) for arrays in (run.tensors, state, start))
    trained = [name for name in real if np.any(wanted[name] != first[name])]
    check = compare(run.losses, found, losses, wanted, first, trained)
    wrong = [
        name
        for name, param in step.params.items()
        if name not in real
        and _apart(run.tensors[name], state[name]) > int(param.kind is ParamKind.OPTIMIZER)
    ]
    problems = [f"integers of {name} are not the oracle's" for name in wrong[:1]]
    error = max(check.weight_error, float(bool(wrong)))
    return losses, Check(check.loss_error, error, check.change_error, (*check.problems, *problems))


def _part(arrays: Mapping[str, np.ndarray], names: set[str]) -> Arrays:
    return {name: array for name, array in arrays.items() if name in names}


def _apart(one: np.ndarray, other: np.ndarray) -> int:
    """Return the largest difference of integers."""
    return int(np.abs(one.astype(np.int64) - other).max(initial=0))
