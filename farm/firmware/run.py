"""Train an artifact on a microcontroller: its files in the firmware's form, and what came back."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.session import RATE, SEED, STEP
from pockengine.devices import load_device
from pockengine.errors import JobFailed
from pockengine.farm.firmware.link import Firmware, link_firmware
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Progress, Transport

_HEADER, _RECORD = struct.Struct("<If"), struct.Struct("<fIQ")
TIME_LIMIT_S = 900.0

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class FirmwareRun:
    """What a firmware left: the loss and the instructions of each step, and all params."""

    losses: list[float]
    instructions: list[int]
    tensors: Arrays
    firmware: Firmware


@dataclass(frozen=True)
class Steps:
    """The inputs of each step by name, and the rate of all."""

    batches: Sequence[Arrays]
    rate: float


def train_firmware(
    transport: Transport,
    artifact: Artifact,
    steps: Steps,
    folder: Path,
    progress: Progress | None = None,
) -> FirmwareRun:
    """Train an artifact on a board that runs firmware; `folder` takes the files of both directions.

    BuildError where the firmware exceeds the device; JobFailed when it fails.
    """
    firmware = link_firmware(artifact, load_device(artifact.device), folder)
    write_batches(artifact, steps, folder / "batches")
    job = Job(
        firmware.path,
        inputs={"data": folder / "batches"},
        outputs=("out",),
        time_limit_s=TIME_LIMIT_S,
    )
    out = run_job(transport, job, folder, progress).outputs["out"]
    return FirmwareRun(*_read_run(artifact, out, len(steps.batches)), firmware)


def write_batches(artifact: Artifact, steps: Steps, path: Path) -> None:
    """Write the inputs of each step in the order in which the firmware reads them."""
    inputs = artifact.entries["train"].inputs
    names = [name for name in inputs if name not in (RATE, STEP, SEED)]
    with path.open("wb") as file:
        file.write(_HEADER.pack(len(steps.batches), steps.rate))
        for batch in steps.batches:
            for name in names:
                file.write(np.ascontiguousarray(batch[name], inputs[name].dtype.numpy).tobytes())


def _read_run(artifact: Artifact, path: Path, steps: int) -> tuple[list[float], list[int], Arrays]:
    """Read losses, instructions and params; JobFailed where the file is of another length."""
    data, types = path.read_bytes(), {name: row.type for name, row in artifact.params.items()}
    wanted = steps * _RECORD.size + sum(type_.nbytes for type_ in types.values())
    if len(data) != wanted:
        raise JobFailed(f"the firmware of {artifact.name} left {len(data)} bytes, not {wanted}")
    records = [_RECORD.unpack_from(data, step * _RECORD.size) for step in range(steps)]
    tensors, offset = {}, steps * _RECORD.size
    for name, type_ in types.items():
        array = np.frombuffer(data, type_.dtype.numpy, type_.size, offset)
        tensors[name] = array.reshape(type_.shape)
        offset += type_.nbytes
    losses, _, counts = (list(column) for column in zip(*records, strict=True))
    return losses, counts, tensors
