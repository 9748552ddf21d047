"""Sessions: run an artifact on this machine from Python, through its library.

with Session(artifact, threads=2) as session:
    loss = session.train_step({"x": images, "labels": labels}, lr=0.01)["loss"]
    logits = session.predict({"x": images})["logits"]

Threads of Python may share a session: its calls wait for each other. Processes may not.
"""

import ctypes
import os
import threading
import weakref
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
    """An artifact with its memory and threads. Close it, or use it in a `with` statement.

    `steps` and `updates` count what was run, and `seed` is that of random numbers; checkpoints keep
    all three. A call that fails counts nothing.
    """

    def __init__(self, artifact: Artifact | Path, threads: int = 1) -> None:
        self.artifact = artifact if isinstance(artifact, Artifact) else load_artifact(artifact)
        self.steps, self.updates, self.seed = 0, 0, 0
        self._collected = 0
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._library = load_library(self.artifact)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._handle: int | None = self._library.pe_open(threads, message)
        if not self._handle:
            raise RuntimeFailure(message.value.decode(errors="replace"))
        self._shut = weakref.finalize(self, _shut, self._library, self._handle, self._process)
        self._shut.atexit = False  # a thread may be inside of a step when the interpreter ends
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
        """End the threads and give the memory back, after the call that another thread is in.

        The session cannot be used afterwards.
        """
        if self._process != os.getpid():
            self._handle = None  # a forked process has none of the threads, and a lock that may
            return  # have been taken
        with self._lock:
            self._handle = None
            self._shut()

    def train_step(
        self, inputs: Mapping[str, np.ndarray], lr: float, seed: int | None = None
    ) -> Arrays:
        """Run one training step and return the outputs, `loss` among them.

        Random numbers depend on the seed and the step's number alone; without a seed it is that of
        the step before, at first 0.
        """
        with self._locked():
            seed = self.seed if seed is None else seed & 0xFFFFFFFF
            step = self.steps + 1
            outputs = self.run("train", {**inputs, **_controls(lr, step, seed, step)})
            self.steps, self.seed = step, seed
            self._collected += self._has_update
            return outputs

    def apply_updates(self, lr: float) -> None:
        """Apply the gradients that micro-batches have collected: the entry `update`.

        `updates` counts these, and is the step's number that optimisers see. RuntimeFailure when
        not as many steps were made as the artifact was compiled for: their mean would be wrong.
        """
        with self._locked():
            wanted = self.artifact.micro_batches
            if self._has_update and self._collected != wanted:
                raise RuntimeFailure(
                    f"an update is the mean of {wanted} micro-batches, and {self._collected} were "
                    f"collected; call train_step {wanted} times before each apply_updates"
                )
            self.run("update", _controls(lr, self.updates + 1, self.seed, self.steps))
            self.updates += 1
            self._collected = 0

    @property
    def _has_update(self) -> bool:
        return any(name.partition("@")[0] == "update" for name in self.artifact.entries)

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
        if sizes is None:
            return self._run(entry, inputs)
        if entry == "update":  # reads no data: the variants are the same
            return self._run(sizes.range.entry(entry, sizes.range.high), inputs)
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
        self._call(
            "pe_call",
            entry.encode(),
            _pointers(arrays),
            _pointers(outputs),
            ctypes.byref(sizes_of(arrays, outputs)),
        )
        return results

    def get_param(self, name: str) -> np.ndarray:
        """Copy of one param or state, in the artifact's layout."""
        type_ = self._param_type(name)
        data = np.empty(type_.shape, type_.dtype.numpy)
        self._call("pe_get_param", name.encode(), _address(data), data.nbytes)
        return data

    def set_param(self, name: str, data: np.ndarray) -> None:
        """Replace one param or state."""
        array = _checked(name, self._param_type(name), {name: data})
        self._call("pe_set_param", name.encode(), _address(array), array.nbytes)

    def params(self) -> Arrays:
        """Copies of all params and states by name."""
        kept = (name for name, spec in self.artifact.params.items() if spec.kind != "constant")
        with self._locked():
            return {name: self.get_param(name) for name in kept}

    def load(self, path: Path | str) -> None:
        """Replace all params by those of a checkpoint, and go on where it was saved.

        `steps`, `updates` and `seed` become the checkpoint's; a file of params sets them to 0.
        """
        progress = (ctypes.c_int64 * 4)()
        with self._locked():
            self._call("pe_load_weights", os.fsencode(path))
            self._library.pe_get_progress(self._handle, progress)
            self.steps, self.updates, self._collected, self.seed = progress
            self.updates *= self._has_update

    def save(self, path: Path | str) -> None:
        """Write a checkpoint: params, states, and what the next step depends on besides.

        A kill at any moment leaves the old file or the new one. RuntimeFailure when what was
        trained is no longer finite: the old file stays.
        """
        with self._locked():
            updates = self.updates if self._has_update else self.steps
            counts = (self.steps, updates, self._collected)
            if not all(0 <= count < 2**31 for count in counts):
                raise RuntimeFailure(f"steps and updates must be from 0 to 2^31 - 1, not {counts}")
            progress = (ctypes.c_int64 * 4)(*counts, self.seed & 0xFFFFFFFF)
            self._library.pe_set_progress(self._open(), progress)
            self._call("pe_save_checkpoint", os.fsencode(path))

    def _param_type(self, name: str) -> TensorType:
        spec = self.artifact.params.get(name)
        if spec is None:
            raise RuntimeFailure(f"{self.artifact.name} has no param {name!r}")
        return spec.type

    def _open(self) -> int:
        if not self._handle:
            raise RuntimeFailure("the session is closed")
        return self._handle

    def _locked(self) -> threading.RLock:
        """Return the lock that every call holds; RuntimeFailure in a forked process."""
        if self._process != os.getpid():
            raise RuntimeFailure(
                f"the session was opened in process {self._process}, whose threads a fork does not "
                "copy; open a session in this process"
            )
        return self._lock

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of the library on the session; RuntimeFailure has its message."""
        with self._locked():
            if getattr(self._library, name)(self._open(), *arguments):
                message: bytes = self._library.pe_message(self._handle)
                raise RuntimeFailure(message.decode(errors="replace"))


def _shut(library: ctypes.CDLL, handle: int, process: int) -> None:
    """End a session, also one that was never closed, but not its parent's in a forked process."""
    if process == os.getpid():
        library.pe_shut(handle)


def _controls(lr: float, step: int, seed: int, batch: int) -> Arrays:
    """Inputs of a step that are no data. `batch` is the number that random numbers depend on."""
    limit = np.finfo(np.float32)
    if not 0 <= lr <= limit.max or 0 < lr < limit.smallest_subnormal:
        raise RuntimeFailure(f"lr must be 0 or a positive number that f32 can hold, not {lr}")
    mixed = (seed * 0x9E3779B9 + batch) & 0xFFFFFFFF
    return {
        RATE: np.asarray(lr, np.float32),
        STEP: np.asarray(step, np.int32),
        SEED: np.asarray(mixed, np.uint32).astype(np.int32),
    }


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
