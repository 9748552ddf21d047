"""Sessions of ONNX models: ONNX Runtime computes, and what it trains stays bound to it.

Each written param has two arrays. An entry reads one and writes the other, and then they change
roles: nothing is copied, and no node can read what another has written already.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.backends.artifact import Artifact, EntrySpec
from pockengine.backends.checkpoint_file import load_checkpoint, save_checkpoint
from pockengine.backends.onnx.bindings import CONSTANTS, NEXT, model_name, read_bindings
from pockengine.backends.onnx.layout import Layout
from pockengine.backends.onnx.ranges import check_ranges
from pockengine.backends.onnx.runtime import Model, import_runtime
from pockengine.backends.session import Progress, Session
from pockengine.compiler.ir.contents import mapped
from pockengine.errors import RuntimeFailure


class _Pair:
    """A written param: the array that holds it, and the one that the next step writes."""

    def __init__(self, data: np.ndarray, layout: Layout) -> None:
        self._layout, self.side = layout, 0
        held = np.array(data.transpose(layout), order="C")
        self._sides = (held, np.empty_like(held))

    @property
    def content(self) -> np.ndarray:
        """What it holds, as the model has it."""
        return self._sides[self.side]

    @property
    def next(self) -> np.ndarray:
        """What the next step writes."""
        return self._sides[1 - self.side]

    @property
    def own(self) -> np.ndarray:
        """What it holds, as the artifact has it: a view."""
        return self.content.transpose(np.argsort(self._layout))

    def swap(self) -> None:
        """Make what was written what it holds."""
        self.side = 1 - self.side


class _Entry:
    """An entry's model with arrays for its data and results."""

    def __init__(self, model: Model, spec: EntrySpec, pairs: dict[str, _Pair]) -> None:
        self._model = model
        self._inputs = {name: np.empty(t.shape, t.dtype.numpy) for name, t in spec.inputs.items()}
        self._outputs = {name: np.empty(t.shape, t.dtype.numpy) for name, t in spec.outputs.items()}
        self._read = {name: pairs[name] for name in model.inputs if name not in spec.inputs}
        news = (name for name in model.outputs if name not in spec.outputs)
        self._written = {name: pairs[name.removeprefix(NEXT)] for name in news}
        self._bindings: dict[tuple[int, ...], Any] = {}

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run the model once, into the outputs and the params."""
        for held, array in zip(self._inputs.values(), inputs, strict=True):
            held[...] = array
        self._model.run(self._binding())
        for pair in self._written.values():
            pair.swap()
        for array, held in zip(outputs, self._outputs.values(), strict=True):
            array[...] = held

    def _binding(self) -> Any:
        """What is bound for the sides that the params are on now; few of these ever occur."""
        sides = tuple(pair.side for pair in (*self._read.values(), *self._written.values()))
        if sides not in self._bindings:
            read = {name: pair.content for name, pair in self._read.items()}
            written = {name: pair.next for name, pair in self._written.items()}
            self._bindings[sides] = self._model.bind(
                {**self._inputs, **read}, {**self._outputs, **written}
            )
        return self._bindings[sides]


class OnnxSession(Session):
    """An artifact's models, and the memory of what they train."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        super().__init__(artifact, threads)
        if threads < 1:
            raise RuntimeFailure(f"a session takes at least one thread, not {threads}")
        import_runtime()
        folder = artifact.folder / "code"
        self._forms = read_bindings(folder)
        first = {name: contents.read() for name, contents in mapped(artifact.weights).items()}
        written = self._forms.written.items()
        self._pairs = {name: _Pair(first[name], layout) for name, layout in written}
        self._frozen = {name: first[name] for name in first if name not in self._pairs}
        self._constants = _mapped(folder / CONSTANTS)
        self._models = {name: (folder / model_name(name)).read_bytes() for name in artifact.entries}
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def close(self) -> None:
        """Give the memory back, after the call that another thread is in."""
        with self._lock:
            self._entries, self._pairs, self._frozen = {}, {}, {}
            self._constants = np.empty(0, np.uint8)
            self._closed = True

    def _run_entry(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        with self._locked():
            self._check_open()
            names = list(self.artifact.entries[entry].inputs)
            check_ranges(entry, self._forms.ranges[entry], names, inputs)
            self._opened(entry).run(inputs, outputs)

    def _opened(self, entry: str) -> _Entry:
        """The entry's model, read when it is first run."""
        if entry not in self._entries:
            beside = {CONSTANTS: self._constants}
            model = Model(entry, self._models[entry], beside, self.threads)
            self._entries[entry] = _Entry(model, self.artifact.entries[entry], self._pairs)
        return self._entries[entry]

    def _read_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            pair = self._pairs.get(name)
            data[...] = self._frozen[name] if pair is None else pair.own

    def _write_param(self, name: str, data: np.ndarray) -> None:
        with self._locked():
            self._check_open()
            if name in self._pairs:
                self._pairs[name].own[...] = data
            else:
                self._write_frozen(name, data)

    def _write_frozen(self, name: str, data: np.ndarray) -> None:
        """Exchange a constant of the models, which are read anew for it when they run next."""
        if self._frozen[name].tobytes() == data.tobytes():
            return
        self._frozen[name] = data.copy()
        for form in self._forms.frozen.get(name, ()):
            held = np.ascontiguousarray(data.transpose(form.layout)).reshape(-1).view(np.uint8)
            self._constants[form.offset : form.offset + held.size] = held
        self._entries.clear()

    def _load_file(self, path: Path | str) -> Progress:
        params, progress = load_checkpoint(self.artifact, Path(path))
        for name, data in params.items():
            self._write_param(name, data)
        return progress

    def _save_file(self, path: Path | str, progress: Progress, whole: bool) -> None:
        self._check_open()
        params, written = self.params(), self._pairs.keys()
        save_checkpoint(self.artifact, params, written, progress, Path(path), whole=whole)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeFailure("the session is closed")


def _mapped(path: Path) -> np.ndarray:
    """The bytes of a file, whose changes stay in memory; an empty one cannot be mapped."""
    if path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "c")
