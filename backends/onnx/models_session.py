"""Common base of sessions with ONNX models, for any runtime.

The runtime stores each written param in the models' layout; frozen params and large constants are
in one memory-mapped file.
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.checkpoint_file import load_checkpoint, save_checkpoint
from pockengine.backends.onnx.bindings import CONSTANTS
from pockengine.backends.runtimes.bindings import read_bindings
from pockengine.backends.runtimes.ranges import check_ranges
from pockengine.backends.session import Progress, Session
from pockengine.compiler.ir.contents import mapped
from pockengine.errors import RuntimeFailure


class ModelsSession(Session):
    """An artifact's models, and the memory of trained params."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        super().__init__(artifact, threads)
        if threads < 1:
            raise RuntimeFailure(f"a session takes at least one thread, not {threads}")
        folder = artifact.folder / "code"
        self._forms = read_bindings(folder)
        first = {name: contents.read() for name, contents in mapped(artifact.weights).items()}
        written = self._forms.written
        self._frozen = {name: data for name, data in first.items() if name not in written}
        self._constants = _mapped(folder / CONSTANTS)
        self._closed = False
        for name, layout in written.items():
            self._set_content(name, np.array(first[name].transpose(layout), order="C"))

    @abstractmethod
    def _set_content(self, name: str, content: np.ndarray) -> None:
        """Set a written param to an array in the models' layout."""

    @abstractmethod
    def _content(self, name: str) -> np.ndarray:
        """Return a written param in the models' layout."""

    @abstractmethod
    def _run_model(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """Run an entry's model on checked inputs, into the outputs and the written params."""

    @abstractmethod
    def _constants_changed(self) -> None:
        """Reread the constants before the next run of a model."""

    @abstractmethod
    def _release(self) -> None:
        """Release the runtime's memory."""

    def close(self) -> None:
        """Release memory, after a concurrent call has finished."""
        with self._lock:
            self._release()
            self._frozen, self._constants = {}, np.empty(0, np.uint8)
            self._closed = True

    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        with self._locked():
            self._check_open()
            names = list(self.artifact.entries[entry].inputs)
            check_ranges(entry, self._forms.ranges[entry], names, inputs)
            self._run_model(entry, inputs, outputs)

    def _read_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            layout = self._forms.written.get(name)
            if layout is None:
                data[...] = self._frozen[name]
            else:
                data[...] = self._content(name).transpose(np.argsort(layout))

    def _write_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            layout = self._forms.written.get(name)
            if layout is None:
                self._write_frozen(name, data)
            else:
                self._set_content(name, np.array(data.transpose(layout), order="C"))

    def _write_frozen(self, name: str, data: np.ndarray) -> None:
        """Replace a constant of the models."""
        if self._frozen[name].tobytes() == data.tobytes():
            return
        self._frozen[name] = data.copy()
        for form in self._forms.frozen.get(name, ()):
            stored = np.ascontiguousarray(data.transpose(form.layout)).reshape(-1).view(np.uint8)
            self._constants[form.offset : form.offset + stored.size] = stored
        self._constants_changed()

    def _load_file(self, path: Path) -> Progress:
        params, progress = load_checkpoint(self.artifact, path)
        for name, data in params.items():
            self._write_param(name, data)
        return progress

    def _save_file(self, path: Path, progress: Progress, whole: bool) -> None:
        self._check_open()
        params, written = self.params(), self._forms.written.keys()
        save_checkpoint(self.artifact, params, written, progress=progress, path=path, whole=whole)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeFailure("the session is closed")


def _mapped(path: Path) -> np.ndarray:
    """Map a file with private changes; an empty file cannot be mapped."""
    if path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "c")
