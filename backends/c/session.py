"""Sessions: run an artifact on this machine from Python, through its library.

with Session(artifact, threads=2) as session:
    loss = session.train_step({"x": images, "labels": labels}, lr=0.01)["loss"]
    logits = session.predict({"x": images})["logits"]
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from pockengine.backends.c.artifact import Artifact, load_artifact
from pockengine.backends.c.library import load_library, sizes_of
from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.sizes import cut
from pockengine.errors import RuntimeFailure

RATE, STEP, SEED = "lr", "step", "seed"
"""Names of the inputs that control a step: learning rate, its number from 1, random seed."""

_MESSAGE_BYTES = 512

Arrays = dict[str, np.ndarray]


class Session:
    """An artifact with its memory and threads. Close it, or use it in a `with` statement."""

    def __init__(self, artifact: Artifact | Path, threads: int = 1) -> None:
        self.artifact = artifact if isinstance(artifact, Artifact) else load_artifact(artifact)
        self.steps = 0
        self.updates = 0
        self._library = load_library(self.artifact)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._handle: int | None = self._library.pe_open(threads, message)
        if not self._handle:
            raise RuntimeFailure(message.value.decode(errors="replace"))
        self.load(self.artifact.weights)

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and give the memory back. The session cannot be used afterwards."""
        if self._handle:
            self._library.pe_shut(self._handle)
            self._handle = None

    def train_step(self, inputs: Mapping[str, np.ndarray], lr: float, seed: int = 0) -> Arrays:
        """Run one training step and return the outputs, `loss` among them.

        `steps` counts them and can be set after loading a checkpoint. Random numbers depend on the
        seed and the step's number alone.
        """
        self.steps += 1
        return self.run("train", {**inputs, **self._controls(lr, self.steps, seed)})

    def apply_updates(self, lr: float) -> None:
        """Apply the gradients that micro-batches have collected: the entry `update`.

        `updates` counts these, and is the step's number that optimisers see.
        """
        self.updates += 1
        self.run("update", self._controls(lr, self.updates, 0))

    def _controls(self, lr: float, step: int, seed: int) -> Arrays:
        """Inputs of a step that are no data."""
        mixed = (seed * 0x9E3779B9 + self.steps) & 0xFFFFFFFF
        return {
            RATE: np.asarray(lr, np.float32),
            STEP: np.asarray(step, np.int32),
            SEED: np.asarray(mixed, np.uint32).astype(np.int32),
        }

    def predict(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run the forward pass alone."""
        return self.run("predict", inputs)

    def evaluate(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run the forward pass with its loss, and train nothing."""
        return self.run("evaluate", inputs)

    def run(self, entry: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run any entry; RuntimeFailure names an input that is missing or of the wrong type.

        Where a size varies, inputs are padded to the next variant and outputs cut back.
        """
        sizes = self.artifact.sizes
        if sizes is None or entry == "update":
            return self._run(entry, inputs)
        size = sizes.range.size_of(inputs)
        bucket = sizes.range.bucket(size)
        padded = {name: sizes.range.padded(name, a, bucket) for name, a in inputs.items()}
        outputs = self._run(sizes.range.entry(entry, bucket), padded)
        axes = sizes.outputs.get(entry, {})
        return {name: cut(array, axes.get(name), size) for name, array in outputs.items()}

    def _run(self, entry: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        spec = self.artifact.entries.get(entry)
        if spec is None:
            known = ", ".join(self.artifact.entries)
            raise RuntimeFailure(f"{self.artifact.name} has no entry {entry!r}; it has {known}")
        given = dict(inputs)
        for control in {RATE, STEP, SEED} - set(spec.inputs):
            given.pop(control, None)
        unknown = sorted(set(given) - set(spec.inputs))
        if unknown:
            known = ", ".join(spec.inputs)
            raise RuntimeFailure(f"entry {entry} has no input {unknown}; it reads {known}")
        arrays = [_checked(name, type_, given) for name, type_ in spec.inputs.items()]
        results = {
            name: np.empty(type_.shape, type_.dtype.numpy) for name, type_ in spec.outputs.items()
        }
        outputs = list(results.values())
        status = self._library.pe_call(
            self._open(),
            entry.encode(),
            _pointers(arrays),
            _pointers(outputs),
            ctypes.byref(sizes_of(arrays, outputs)),
        )
        self._check(status)
        return results

    def get_param(self, name: str) -> np.ndarray:
        """Copy of one param or state, in the artifact's layout."""
        type_ = self._param_type(name)
        data = np.empty(type_.shape, type_.dtype.numpy)
        self._check(
            self._library.pe_get_param(self._open(), name.encode(), _address(data), data.nbytes)
        )
        return data

    def set_param(self, name: str, data: np.ndarray) -> None:
        """Replace one param or state."""
        array = _checked(name, self._param_type(name), {name: data})
        self._check(
            self._library.pe_set_param(self._open(), name.encode(), _address(array), array.nbytes)
        )

    def params(self) -> Arrays:
        """Copies of all params and states by name."""
        kept = (name for name, spec in self.artifact.params.items() if spec.kind != "constant")
        return {name: self.get_param(name) for name in kept}

    def load(self, path: Path) -> None:
        """Replace all params by those of a checkpoint."""
        self._check(self._library.pe_load_weights(self._open(), str(path).encode()))

    def save(self, path: Path) -> None:
        """Write a checkpoint; a kill at any moment leaves the old file or the new one."""
        self._check(self._library.pe_save_checkpoint(self._open(), str(path).encode()))

    def _param_type(self, name: str) -> TensorType:
        spec = self.artifact.params.get(name)
        if spec is None:
            raise RuntimeFailure(f"{self.artifact.name} has no param {name!r}")
        return spec.type

    def _open(self) -> int:
        if not self._handle:
            raise RuntimeFailure("the session is closed")
        return self._handle

    def _check(self, status: int) -> None:
        if status:
            message: bytes = self._library.pe_message(self._open())
            raise RuntimeFailure(message.decode(errors="replace"))


def _checked(name: str, type_: TensorType, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """The array as the runtime reads it; nothing is cast or broadcast silently."""
    if name not in given:
        raise RuntimeFailure(f"input {name} ({type_}) is missing")
    array = np.asarray(given[name])
    if array.shape != type_.shape or array.dtype != type_.dtype.numpy:
        raise RuntimeFailure(f"{name} must be {type_}, not {array.dtype}{list(array.shape)}")
    return np.ascontiguousarray(array).reshape(type_.shape)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointers(arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
