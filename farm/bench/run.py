"""Train an artifact on a board: send it, run it, bring losses, checkpoint and figures back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine.backends.artifact import Artifact
from pockengine.compiler.controls import RATE
from pockengine.devices import load_device
from pockengine.errors import JobFailed
from pockengine.farm.firmware.link import Firmware
from pockengine.farm.firmware.run import FirmwareRun, Steps, train_firmware
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.references.job import JobData
from pockengine.farm.transports.transport import Progress, Transport

TIME_LIMIT_S = 900.0


@dataclass(frozen=True)
class BoardRun:
    """A run's output: loss and time of each step, the checkpoint, the memory.

    Firmware counts the `instructions` of its steps; its memory is that of its sections.
    """

    losses: list[float]
    step_ms: list[float]
    tensors: Mapping[str, np.ndarray]
    peak_rss_bytes: int
    binary_bytes: int
    instructions: tuple[int, ...] = ()
    firmware: Firmware | None = None


def write_rows(artifact: Artifact, data: JobData, path: Path) -> None:
    """Write a job's batches as the runner reads them: rows, by the names of the artifact's inputs.

    A model with a loss of its own reads no labels.
    """
    names = [name for name in artifact.entries["train"].inputs if name != RATE]
    images = data.images.reshape(-1, *data.images.shape[2:])
    arrays = map(np.ascontiguousarray, (images, data.labels.reshape(-1)))  # it ignores strides
    save_file(dict(zip(names, arrays, strict=False)), path)


def train_arguments(data: JobData, weights: str, rows: str, threads: int) -> list[str]:
    """Return the runner's command for all steps of a job."""
    return [
        *["train", "--weights", weights, "--data", rows, "--steps", str(data.steps)],
        *["--lr", repr(data.job.learning_rate), "--threads", str(threads)],
    ]


def train_on_board(
    transport: Transport,
    artifact: Artifact,
    data: JobData,
    threads: int,
    folder: Path,
    progress: Progress | None = None,
    libraries: Mapping[str, Path] | None = None,
) -> BoardRun:
    """Run all steps of a job on a board; `folder` takes the files of both directions.

    `libraries` are shared ones that the board lacks, by their names. JobFailed when the program
    fails or prints something else than its report.
    """
    if load_device(artifact.device).freestanding:
        return _train_firmware(transport, artifact, data, folder=folder, progress=progress)
    rows = folder / "rows.safetensors"
    write_rows(artifact, data, rows)
    arguments = train_arguments(data, "weights", "rows", threads)
    job = Job(
        artifact.executable,
        args=(*arguments, "--save", "tuned", "--save-whole"),
        inputs={"weights": artifact.weights, "rows": rows},
        outputs=("tuned",),
        libraries=libraries or {},
        time_limit_s=TIME_LIMIT_S,
    )
    result = run_job(transport, job, folder, progress)
    lines = _report(transport.board, result.run.stdout)
    steps = [line for line in lines if "step" in line]
    memory = [int(line["peak_rss_bytes"]) for line in lines if "peak_rss_bytes" in line]
    if not memory:
        raise JobFailed(f"{transport.board}: the program ended without its last line")
    return BoardRun(
        [_loss(line) for line in steps],
        [int(line["ns"]) / 1e6 for line in steps],
        load_file(result.outputs["tuned"]),
        peak_rss_bytes=memory[0],
        binary_bytes=artifact.executable.stat().st_size,
    )


def _train_firmware(
    transport: Transport,
    artifact: Artifact,
    data: JobData,
    folder: Path,
    progress: Progress | None,
) -> BoardRun:
    """Run all steps of a job as firmware."""
    names = [name for name in artifact.entries["train"].inputs if name != RATE]
    rows = zip(data.images, data.labels, strict=True)
    steps = Steps([dict(zip(names, row, strict=False)) for row in rows], data.job.learning_rate)
    run = train_firmware(transport, artifact, steps, folder=folder, progress=progress)
    return firmware_run(run)


def firmware_run(run: FirmwareRun) -> BoardRun:
    """Return a firmware's run as that of any board."""
    sizes = run.firmware.memory_bytes, run.firmware.flash_bytes
    return BoardRun(
        run.losses, [], run.tensors, *sizes,
        instructions=tuple(run.instructions), firmware=run.firmware,
    )  # fmt: skip


def read_losses(board: str, stdout: bytes) -> list[float]:
    """Return the losses of all steps that the runner prints; JobFailed where it prints others."""
    return [_loss(line) for line in _report(board, stdout) if "step" in line]


def _report(board: str, stdout: bytes) -> list[dict[str, Any]]:
    """Read the JSON lines that the runner prints."""
    lines = []
    for line in stdout.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise JobFailed(f"{board}: the program printed {line[:80]!r} instead of its report")
        lines.append(values)
    return lines


def _loss(line: Mapping[str, Any]) -> float:
    """Return a step's loss; the runner prints null for NaN and infinities."""
    return float("nan") if line["loss"] is None else float(line["loss"])
