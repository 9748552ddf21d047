"""Sessions of TFLite files: the runtime computes, and stores trained params in its variables.

A session calls the same signatures as any other program. Params are read by `save`, at most once
after each step, and set by `restore`, before the next step.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.checkpoint_file import load_checkpoint, save_checkpoint
from pockengine.backends.runtimes.bindings import read_bindings
from pockengine.backends.runtimes.ranges import check_ranges
from pockengine.backends.session import Progress, Session
from pockengine.backends.tflite.controls import COUNTED, FIRST, is_training
from pockengine.backends.tflite.names import CONFIGURE, MODEL, NODES, RESTORE, SAVE, signature_of
from pockengine.backends.tflite.runtime import LiteModel, import_runtime
from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir.contents import mapped
from pockengine.errors import RuntimeFailure


class TfliteSession(Session):
    """An artifact's file in the runtime."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        super().__init__(artifact, threads)
        if threads < 1:
            raise RuntimeFailure(f"a session takes at least one thread, not {threads}")
        import_runtime()
        folder = artifact.folder / "code"
        self._file = folder / MODEL
        self._forms = read_bindings(folder)
        self._nodes = json.loads((folder / NODES).read_text(encoding="utf-8"))
        first = {name: contents.read() for name, contents in mapped(artifact.weights).items()}
        self._trained = {name: first[name] for name in self._forms.written}
        self._frozen = {name: first[name] for name in first if name not in self._trained}
        self._content: np.ndarray | None = None
        self._is_read, self._is_set = True, False
        self._controls: dict[str, np.ndarray] = dict(FIRST)
        self._closed = False
        self._model: LiteModel | None = LiteModel(self._file, self._nodes, threads)

    def close(self) -> None:
        """Release memory, after a concurrent call has finished."""
        with self._lock:
            self._model, self._content = None, None
            self._trained, self._frozen = {}, {}
            self._closed = True

    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        with self._locked():
            self._check_open()
            spec = self.artifact.entries[entry]
            check_ranges(entry, self._forms.ranges[entry], list(spec.inputs), inputs)
            data = dict(zip(spec.inputs, inputs, strict=True))
            self._flush()
            if is_training(entry):
                results = self._run_training(entry, data)
            else:
                results = self._call(signature_of(entry), entry, data)
            for name, array in zip(spec.outputs, outputs, strict=True):
                array[...] = results[name]

    def _run_training(self, entry: str, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run an entry that writes; after a failure the variables' contents are unknown."""
        controls = {name: data.pop(name) for name in CONTROLS if name in data}
        current, self._controls, self._is_read = self._controls, {}, False
        before = {name: _before(name, number) for name, number in controls.items()}
        if any(name not in current or current[name] != number for name, number in before.items()):
            current = {**FIRST, **current, **before}
            self._call(CONFIGURE, CONFIGURE, current)
        results = self._call(signature_of(entry), entry, data)
        self._controls = {**current, **controls}
        return results

    def _call(
        self, signature: str, subgraph: str, data: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        assert self._model is not None
        return self._model.run(signature, subgraph, data)

    def _flush(self) -> None:
        """Write pending params to the variables, reloading the file if necessary."""
        if self._model is None:
            assert self._content is not None
            self._model = LiteModel(self._content.tobytes(), self._nodes, self.threads)
            self._controls, self._is_set = dict(FIRST), True
        if self._is_set:
            self._call(RESTORE, RESTORE, self._trained)
            self._is_set = False

    def _fetch(self) -> None:
        """Read the variables, if a step may have written them."""
        if not self._is_read:
            self._trained = self._call(SAVE, SAVE, {})
            self._is_read = True

    def _read_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            self._fetch()
            data[...] = self._trained[name] if name in self._trained else self._frozen[name]

    def _write_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            self._fetch()
            if name in self._trained:
                self._trained[name] = data.copy()
                self._is_set = True
            else:
                self._write_frozen(name, data)

    def _write_frozen(self, name: str, data: np.ndarray) -> None:
        """Replace a constant of the file, which is reloaded before the next run."""
        if self._frozen[name].tobytes() == data.tobytes():
            return
        self._frozen[name] = data.copy()
        if self._content is None:
            self._content = np.fromfile(self._file, np.uint8)
        for form in self._forms.frozen.get(name, ()):
            stored = np.ascontiguousarray(data.transpose(form.layout)).reshape(-1).view(np.uint8)
            self._content[form.offset : form.offset + stored.size] = stored
        self._model = None

    def _load_file(self, path: Path) -> Progress:
        params, progress = load_checkpoint(self.artifact, path)
        for name, data in params.items():
            self._write_param(name, data)
        return progress

    def _save_file(self, path: Path, progress: Progress, whole: bool) -> None:
        self._check_open()
        params, written = self.params(), self._trained.keys()
        save_checkpoint(self.artifact, params, written, progress=progress, path=path, whole=whole)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeFailure("the session is closed")


def _before(name: str, number: np.ndarray) -> np.ndarray:
    """The value of a control before a step that reads this number; counts wrap around."""
    if name not in COUNTED:
        return number
    return np.asarray(int(number) - 1 & 0xFFFFFFFF, np.uint32).astype(np.int32)
