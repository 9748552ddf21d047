"""A reference engine's training job as a folder: settings, weights and batches.

The folder crosses process and framework borders: job.json has the settings, weights.safetensors the
state_dict in PyTorch's names and layouts, batches.safetensors `images` [steps, N, C, H, W] f32 or
[steps, N, L] i64 tokens, and `labels` [steps, N] i64. It needs only NumPy and safetensors, as
emulated Pythons read it too.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pockengine.errors import FarmError

Tensors = dict[str, NDArray[np.generic]]
Channels = tuple[int, int] | None
BATCH_NORMS = ("train", "frozen")


@dataclass(frozen=True)
class TrainingJob:
    """The settings of a training run: cross entropy, SGD as PyTorch defines it.

    `model` is a name of models.registry. `batch_norm` "train" normalizes by the batch and updates
    the running statistics, "frozen" uses them as they are. `trainable` maps the names of what is
    trained to its first and last + 1 trained input channel (None: all channels); everything else is
    frozen. None in its place trains everything.
    """

    model: str
    classes: int = 1000
    batch_norm: str = "train"
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    trainable: Mapping[str, Channels] | None = None

    def __post_init__(self) -> None:
        """Reject settings that no engine supports; convert lists (from JSON) to pairs."""
        if self.batch_norm not in BATCH_NORMS:
            raise FarmError(f"batch norm {self.batch_norm!r} is unknown; use one of {BATCH_NORMS}")
        if self.trainable is not None and not self.trainable:
            raise FarmError("a training job must train something; its `trainable` is empty")
        if self.trainable is not None:
            pairs = {
                name: None if channels is None else (channels[0], channels[1])
                for name, channels in self.trainable.items()
            }
            object.__setattr__(self, "trainable", pairs)


@dataclass(frozen=True)
class JobData:
    """A job and its data: weights by name, images [steps, N, C, H, W], labels [steps, N].

    For a model of tokens they replace images, i64 [steps, N, L]; a model with its own loss ignores
    the labels.
    """

    job: TrainingJob
    weights: Tensors
    images: NDArray[np.float32] | NDArray[np.int64]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Check that images and labels belong together."""
        form = (self.images.ndim, self.images.dtype)
        if form not in ((5, np.dtype(np.float32)), (3, np.dtype(np.int64))):
            raise FarmError(
                "images must be f32 [steps, N, C, H, W], or tokens i64 [steps, N, L], not "
                f"{self.images.dtype} {list(self.images.shape)}"
            )
        if self.labels.shape != self.images.shape[:2] or self.labels.dtype != np.int64:
            raise FarmError(
                f"labels must be i64 {list(self.images.shape[:2])}, not {self.labels.dtype} "
                f"{list(self.labels.shape)}"
            )

    @property
    def steps(self) -> int:
        """How many batches there are."""
        return self.images.shape[0]

    @property
    def trains_all(self) -> bool:
        """Whether every weight and bias trains, and whole."""
        if self.job.trainable is None:
            return True
        parameters = {name for name in self.weights if name.endswith((".weight", ".bias"))}
        shares = [channels for channels in self.job.trainable.values() if channels is not None]
        return set(self.job.trainable) == parameters and not shares


def check_channels(name: str, channels: tuple[int, int], size: int) -> None:
    """Raise FarmError unless a range of channels lies in a parameter's `size` channels."""
    first, end = channels
    if not 0 <= first < end <= size:
        raise FarmError(f"{name} has {size} channels; [{first}, {end}] of them cannot be trained")


def write_job(folder: Path, data: JobData) -> None:
    """Write a job into a folder, which is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(dataclasses.asdict(data.job), indent=1) + "\n")
    weights = {name: np.array(tensor, order="C") for name, tensor in data.weights.items()}
    save_file(weights, folder / "weights.safetensors")
    batches: Tensors = {
        "images": np.array(data.images, order="C"),
        "labels": np.array(data.labels, order="C"),
    }
    save_file(batches, folder / "batches.safetensors")


def read_job(folder: Path) -> JobData:
    """Read a job that `write_job` wrote; FarmError if something is missing or of another form."""
    try:
        job = TrainingJob(**json.loads((folder / "job.json").read_text()))
        batches = load_file(folder / "batches.safetensors")
        weights = load_file(folder / "weights.safetensors")
        return JobData(job, weights, batches["images"], batches["labels"])
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise FarmError(f"the training job in {folder} cannot be read: {error!r}") from error
