"""Sessions: run an artifact on this machine from Python.

with open_session(artifact, threads=2) as session:
    loss = session.train_step({"x": images, "labels": labels}, lr=0.01)["loss"]
    logits = session.predict({"x": images})["logits"]

This module has what all backends share: input checks, variable sizes, and the counts that a step
depends on. A backend's session runs entries and stores params, in six methods.

Python threads may share a session, whose calls are serialized. Processes may not.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.generation import Generation, Notify
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.boundary import entry_points
from pockengine.compiler.controls import CONTROLS, RATE, SEED, STEP
from pockengine.compiler.ir.contents import mapped
from pockengine.compiler.ir.scalars import widens
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.sizes import cut
from pockengine.errors import ArgumentError, RuntimeFailure, masked_data
from pockengine.files import whole_path

MOST_THREADS = 4096
"""PE_MOST_THREADS of pe_limits.h: the maximum thread count."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Course:
    """The course of a training: its rate schedule, and `rows` of data, in order or shuffled.

    `batch` is the number of rows per step. Both are 0 if unknown. `flip` and `crop` are the
    augmentation of images (backends/augmentation.py).
    """

    schedule: RateSchedule
    rows: int = 0
    shuffled: bool = False
    batch: int = 0
    flip: bool = False
    crop: int = 0


@dataclass(frozen=True)
class Progress:
    """State of a training besides params: counts of steps and updates, and the seed.

    `collected` counts the micro-batches since the last update. `course` is None if the caller
    supplies the rates and the data's order.
    """

    steps: int = 0
    updates: int = 0
    collected: int = 0
    seed: int = 0
    course: Course | None = None


class Session(ABC):
    """An open artifact with its memory and threads. Close it, or use it in a `with` statement.

    `steps` and `updates` are counts, `seed` is the random seed, and `course` is the training's
    course, if set; checkpoints store all four. A failed call does not count.
    """

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        if not isinstance(threads, int | np.integer) or not 1 <= threads <= MOST_THREADS:
            raise RuntimeFailure(f"threads must be from 1 to {MOST_THREADS}, not {threads!r}")
        self.artifact, self.threads = artifact, int(threads)
        self.steps, self.updates, self.seed = 0, 0, 0
        self.course: Course | None = None
        self._collected = 0
        self._lock = threading.RLock()
        self._process = os.getpid()

    @abstractmethod
    def close(self) -> None:
        """Release memory and threads; the session cannot be used afterwards."""

    @abstractmethod
    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Run an entry of the artifact on checked inputs, into outputs, in the manifest's order."""

    @abstractmethod
    def _read_param(self, name: str, data: np.ndarray) -> None:
        """Copy a param of the artifact into an array of its type."""

    @abstractmethod
    def _write_param(self, name: str, data: np.ndarray) -> None:
        """Copy an array of its type into a param."""

    @abstractmethod
    def _load_file(self, path: Path) -> Progress:
        """Replace params by all those of a file; RuntimeFailure if any does not fit."""

    @abstractmethod
    def _save_file(self, path: Path, progress: Progress, whole: bool) -> None:
        """Write trained params, states and progress to a file, atomically.

        With `whole`, write all other params too.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def train_step(
        self, inputs: Mapping[str, np.ndarray], lr: float, seed: int | None = None
    ) -> Arrays:
        """Run one training step and return the outputs, `loss` among them.

        Outputs of more than 4 MiB, such as a decoder's logits, are returned by `predict` only.

        With micro-batches a step accumulates gradients, and the last one of each group updates the
        weights at its own rate: `updates` counts these. Random numbers depend only on the seed and
        the step number; the default seed is that of the previous step, initially 0.
        """
        with self._locked():
            seed = self.seed if seed is None else seed & 0xFFFFFFFF
            step = self.steps + 1
            number = step if self._has_update else self.updates + 1
            outputs = self.run("train", {**inputs, **_controls(lr, number, seed, step)})
            self.steps, self.seed = step, seed
            self._collected += self._has_update
            self.updates += not self._has_update
            if self._has_update and self._collected >= self.artifact.micro_batches:
                self._apply_updates(lr)
            return outputs

    def _apply_updates(self, lr: float) -> None:
        """Apply the mean of the gradients accumulated over micro-batches: entry `update`."""
        self.run("update", _controls(lr, self.updates + 1, self.seed, self.steps))
        self.updates += 1
        self._collected = 0

    def restart(self) -> None:
        """Start a new training on the current params: fresh optimizer states, counts of 0."""
        with self._locked():
            compiled = mapped(self.artifact.weights)
            for name, spec in self.artifact.params.items():
                if spec.kind == "state":
                    self.set_param(name, compiled[name].read())
            self._go_on_from(Progress())

    @property
    def _has_update(self) -> bool:
        return any(name.partition("@")[0] == "update" for name in self.artifact.entries)

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run the forward pass only."""
        return self.run("predict", inputs)

    def evaluate(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run the forward pass with its loss, without training."""
        return self.run("evaluate", inputs)

    @property
    def positions(self) -> int:
        """Number of tokens, of a prompt and its answer, that `generate` has a cache for."""
        return 0

    def generate(
        self,
        prompt: Sequence[int],
        how: Generation,
        *,
        cached: int = 0,
        notify: Notify | None = None,
    ) -> list[int]:
        """Return the tokens that follow a prompt; RuntimeFailure if the program generates none.

        The session has the keys and values of the first `cached` tokens of the prompt from a call
        before. `notify` is called with each token; False ends the text.
        """
        return self._generate(_token_ids(prompt), how, cached, notify)

    def _generate(
        self, prompt: np.ndarray, how: Generation, cached: int, notify: Notify | None
    ) -> list[int]:
        raise RuntimeFailure(
            f"backend {self.artifact.backend} generates no text; compile by the backend c"
        )

    def run(self, entry: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run any entry; RuntimeFailure names an input that is missing or of the wrong type.

        With a variable size, inputs are padded to the next variant and outputs cropped.
        """
        sizes = self.artifact.sizes
        if sizes is None:
            return self._run(entry, inputs)
        if entry == "update":  # reads no data: all variants are equal
            return self._run(sizes.range.entry(entry, sizes.range.high), inputs)
        arrays = {name: to_numpy(name, value) for name, value in inputs.items()}
        size = sizes.range.size_of(arrays)
        bucket = sizes.range.bucket(size)
        variant = sizes.range.entry(entry, bucket)
        spec = self.artifact.entries.get(variant)
        for name, type_ in ({} if spec is None else spec.inputs).items():
            if name in arrays:  # before padding: a small type may not hold the value of padding
                arrays[name] = _widened(arrays[name], type_)
        padded = {name: sizes.range.padded(name, a, bucket) for name, a in arrays.items()}
        outputs = self._run(variant, padded)
        axes = sizes.outputs.get(entry, {})
        return {name: cut(array, axes.get(name, ()), size) for name, array in outputs.items()}

    def _run(self, entry: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        spec = self.artifact.entries.get(entry)
        if spec is None:
            known = ", ".join(self.artifact.entries)
            raise RuntimeFailure(f"{self.artifact.name} has no entry {entry!r}; it has {known}")
        feed = dict(inputs)
        for control in CONTROLS.keys() - set(spec.inputs):
            feed.pop(control, None)
        unknown = sorted(set(feed) - set(spec.inputs))
        if unknown:
            known = ", ".join(spec.inputs)
            raise RuntimeFailure(f"entry {entry} has no input {unknown}; it reads {known}")
        arrays = [_checked(name, type_, feed) for name, type_ in spec.inputs.items()]
        results = {
            name: np.empty(type_.shape, type_.dtype.numpy) for name, type_ in spec.outputs.items()
        }
        self._run_entry(entry, arrays, list(results.values()))
        return results

    def get_param(self, name: str) -> np.ndarray:
        """Copy one param or state, in the artifact's layout."""
        type_ = self._param_type(name)
        data = np.empty(type_.shape, type_.dtype.numpy)
        self._read_param(name, data)
        return data

    def set_param(self, name: str, data: np.ndarray) -> None:
        """Replace one param or state."""
        array = _checked(name, self._param_type(name), {name: data})
        self._write_param(name, array)

    def params(self) -> Arrays:
        """Copy all params and states, by name."""
        names = (name for name, spec in self.artifact.params.items() if spec.kind != "constant")
        with self._locked():
            return {name: self.get_param(name) for name in names}

    def load(self, path: Path | str) -> None:
        """Load a checkpoint: its params, and the position at which it was saved.

        `steps`, `updates`, `seed` and `course` become the checkpoint's; a file of params has none.
        RuntimeFailure for a damaged file or one of another program; then nothing is changed.
        """
        with self._locked():
            self._go_on_from(self._load_file(whole_path(path, RuntimeFailure)))

    def save(self, path: Path | str, *, whole: bool = False) -> None:
        """Write a checkpoint: trained params, states, and progress.

        It is loaded on top of the artifact's weights; a `whole` one has the frozen weights too. A
        kill at any moment leaves the old file or the new one. A link at `path` is replaced, its
        target stays. TrainingDiverged if trained params are no longer finite: the old file stays.
        """
        with self._locked():
            counts = (self.steps, self.updates, self._collected)
            if not all(0 <= count < 2**31 for count in counts):
                raise RuntimeFailure(f"steps and updates must be from 0 to 2^31 - 1, not {counts}")
            self._save_file(whole_path(path, RuntimeFailure), self._progress(), whole)

    def take(self, other: "Session") -> None:
        """Copy the state of another session of the same artifact, except its threads."""
        with self._locked():
            for name, data in other.params().items():
                self.set_param(name, data)
            self._go_on_from(other._progress())

    def _progress(self) -> Progress:
        counts = (self.steps, self.updates, self._collected)
        return Progress(*counts, self.seed & 0xFFFFFFFF, self.course)

    def _go_on_from(self, progress: Progress) -> None:
        """Set the counts and the course to those of a progress."""
        self.steps, self.updates = progress.steps, progress.updates
        self._collected, self.seed = progress.collected, progress.seed
        self.course = progress.course

    def _param_type(self, name: str) -> TensorType:
        spec = self.artifact.params.get(name)
        if spec is None:
            raise RuntimeFailure(f"{self.artifact.name} has no param {name!r}")
        return spec.type

    def _locked(self) -> threading.RLock:
        """Return the lock that every call holds; RuntimeFailure in a forked process."""
        if self._process != os.getpid():
            raise RuntimeFailure(
                f"the session was opened in process {self._process}, whose threads a fork does not "
                "copy; open a session in this process"
            )
        return self._lock


entry_points(Session)


def _controls(lr: float, step: int, seed: int, batch: int) -> Arrays:
    """The control inputs of a step. Random numbers depend on `batch`."""
    limit = np.finfo(np.float32)
    if not isinstance(lr, Real):
        raise RuntimeFailure(f"lr must be a number, not {type(lr).__name__}")
    if not 0 <= lr <= limit.max or 0 < lr < limit.smallest_subnormal:
        raise RuntimeFailure(f"lr must be 0 or a positive number that f32 can hold, not {lr}")
    mixed = (seed * 0x9E3779B9 + batch) & 0xFFFFFFFF
    return {
        RATE: np.asarray(lr, np.float32),
        STEP: np.asarray(step, np.int32),
        SEED: np.asarray(mixed, np.uint32).astype(np.int32),
    }


def to_numpy(name: str, value: Any) -> np.ndarray:
    """Convert a framework's tensor, or any array-like, to NumPy; RuntimeFailure for masked numbers.

    PyTorch's bfloat16, which NumPy lacks, becomes float32.
    """
    if np.ma.is_masked(value):
        raise RuntimeFailure(masked_data(name))
    if hasattr(value, "detach"):  # PyTorch tensor
        value = value.detach().cpu().to_dense()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if hasattr(value, "numpy"):  # PyTorch and TensorFlow
        value = value.numpy()
    return np.asarray(value)


def _token_ids(tokens: Sequence[int]) -> np.ndarray:
    """Return tokens i64 [N]; ArgumentError if they are not integers."""
    try:
        ids = np.asarray(list(tokens))
        if ids.ndim == 1 and (ids.dtype.kind in "iu" or not ids.size):
            return ids.astype(np.int64)
    except (ValueError, TypeError, OverflowError):
        pass
    raise ArgumentError(f"generate: prompt must be token numbers, not {str(tokens)[:40]!r}")


def _widened(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """Return an array of a narrower type as the runtime reads it; others unchanged."""
    widening = widens(array.dtype, type_.dtype)
    return array.astype(type_.dtype.numpy) if widening else array


def _checked(name: str, type_: TensorType, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array as the runtime reads it: numbers are widened if needed, other casts are refused."""
    if name not in feed:
        raise RuntimeFailure(f"input {name} ({type_}) is missing")
    array = _widened(to_numpy(name, feed[name]), type_)
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        raise RuntimeFailure(f"{name} must be {type_}, not {array.dtype}{list(array.shape)}")
    return np.ascontiguousarray(array).reshape(type_.shape)
