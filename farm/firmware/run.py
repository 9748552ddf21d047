"""Train an artifact on a microcontroller: convert its files to the firmware's form and back."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.compiler.controls import RATE, SEED, STEP
from pockengine.compiler.ir.types import TensorType
from pockengine.devices import load_device
from pockengine.errors import JobFailed
from pockengine.farm.firmware.link import Firmware, link_firmware
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Progress, Transport

_HEADER, _RECORD = struct.Struct("<IfI"), struct.Struct("<fIQ")
TIME_LIMIT_S = 900.0
BATCHES = "batches"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class FirmwareRun:
    """Result of a firmware run: loss and instructions of each step, and all params.

    `before` and `after` are predictions for the evaluation batches, by output name.
    """

    losses: list[float]
    instructions: list[int]
    tensors: Arrays
    before: list[Arrays]
    after: list[Arrays]
    firmware: Firmware


@dataclass(frozen=True)
class Steps:
    """The inputs of each step by name, and the learning rate.

    `judged` are evaluation batches: the firmware predicts them before the first step and after the
    last.
    """

    batches: Sequence[Arrays]
    rate: float
    judged: Sequence[Arrays] = ()


def train_firmware(
    transport: Transport,
    artifact: Artifact,
    steps: Steps,
    folder: Path,
    progress: Progress | None = None,
) -> FirmwareRun:
    """Train an artifact on a board that runs firmware; `folder` is for input and output files.

    BuildError if the firmware exceeds the device; JobFailed if it fails.
    """
    firmware = link_firmware(artifact, load_device(artifact.device), folder)
    write_batches(artifact, steps, folder / BATCHES)
    job = Job(
        firmware.path,
        inputs={"data": folder / BATCHES},
        outputs=("out",),
        time_limit_s=TIME_LIMIT_S,
    )
    out = run_job(transport, job, folder, progress).outputs["out"]
    return FirmwareRun(*_read_run(artifact, out, steps), firmware)


def write_first_steps(firmware: Firmware, count: int, path: Path) -> None:
    """Write the inputs of the first `count` steps of a firmware that has trained, without judged
    batches."""
    data = (firmware.path.parent / BATCHES).read_bytes()
    steps, rate, judged = _HEADER.unpack_from(data)
    if judged:
        raise JobFailed(f"{firmware.path.name} reads {judged} batches before its first step")
    path.write_bytes(_HEADER.pack(min(steps, count), rate, 0) + data[_HEADER.size :])


def write_batches(artifact: Artifact, steps: Steps, path: Path) -> None:
    """Write all inputs in the order in which the firmware reads them."""
    with path.open("wb") as file:
        file.write(_HEADER.pack(len(steps.batches), steps.rate, len(steps.judged)))
        for entry, batches in (
            ("predict", steps.judged),
            ("train", steps.batches),
            ("predict", steps.judged),
        ):
            inputs = _inputs(artifact, entry) if batches else {}
            for batch in batches:
                for name, type_ in inputs.items():
                    file.write(np.ascontiguousarray(batch[name], type_.dtype.numpy).tobytes())


def _inputs(artifact: Artifact, entry: str) -> dict[str, TensorType]:
    """Return the data inputs of an entry."""
    inputs = artifact.entries[entry].inputs
    return {name: type_ for name, type_ in inputs.items() if name not in (RATE, STEP, SEED)}


def _read_run(
    artifact: Artifact, path: Path, steps: Steps
) -> tuple[list[float], list[int], Arrays, list[Arrays], list[Arrays]]:
    """Read the firmware's output; JobFailed if the file has another length."""
    data, types = path.read_bytes(), _listed(artifact)
    outputs = artifact.entries["predict"].outputs if steps.judged else {}
    judged, count = len(steps.judged) * _size(outputs), len(steps.batches)
    expected = 2 * judged + count * _RECORD.size + _size(types)
    if len(data) != expected:
        raise JobFailed(f"the firmware of {artifact.name} left {len(data)} bytes, not {expected}")
    end = judged + count * _RECORD.size
    records = list(_RECORD.iter_unpack(data[judged:end]))
    before, after = (
        [_arrays(data, outputs, start + row * _size(outputs)) for row in range(len(steps.judged))]
        for start in (0, end)
    )
    losses, counts = [loss for loss, _, _ in records], [count for _, _, count in records]
    return losses, counts, _arrays(data, types, end + judged), before, after


def _listed(artifact: Artifact) -> dict[str, TensorType]:
    """Return the tensors that a device with flash lists by name: all except constants."""
    rows = artifact.params.items()
    return {name: row.type for name, row in rows if row.kind != "constant"}


def _size(types: Mapping[str, TensorType]) -> int:
    return sum(type_.nbytes for type_ in types.values())


def _arrays(data: bytes, types: Mapping[str, TensorType], offset: int) -> Arrays:
    """Read concatenated arrays."""
    found = {}
    for name, type_ in types.items():
        array = np.frombuffer(data, type_.dtype.numpy, type_.size, offset)
        found[name] = array.reshape(type_.shape)
        offset += type_.nbytes
    return found
