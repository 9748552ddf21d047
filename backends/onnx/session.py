"""Sessions of ONNX models: ONNX Runtime computes, and what it trains stays bound to it.

Each written param has two arrays. An entry reads one and writes the other, and then they change
roles: nothing is copied, and no node can read what another has written already.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.backends.artifact import Artifact, EntrySpec
from pockengine.backends.onnx.bindings import CONSTANTS, NEXT, model_name
from pockengine.backends.onnx.models_session import ModelsSession
from pockengine.backends.onnx.runtime import Model, import_runtime


class _Pair:
    """A written param: the array that holds it, and the one that the next step writes."""

    def __init__(self, content: np.ndarray) -> None:
        self.side = 0
        self._sides = (content, np.empty_like(content))

    @property
    def content(self) -> np.ndarray:
        """What it holds."""
        return self._sides[self.side]

    @property
    def next(self) -> np.ndarray:
        """What the next step writes."""
        return self._sides[1 - self.side]

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


class OnnxSession(ModelsSession):
    """An artifact's models as ONNX Runtime has read them."""

    def __init__(self, artifact: Artifact, threads: int = 1) -> None:
        self._pairs: dict[str, _Pair] = {}
        self._entries: dict[str, _Entry] = {}
        super().__init__(artifact, threads)
        import_runtime()
        folder = artifact.folder / "code"
        self._models = {name: (folder / model_name(name)).read_bytes() for name in artifact.entries}

    def _run_model(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        self._opened(entry).run(inputs, outputs)

    def _opened(self, entry: str) -> _Entry:
        """The entry's model, read when it is first run."""
        if entry not in self._entries:
            beside = {CONSTANTS: self._constants}
            model = Model(entry, self._models[entry], beside, self.threads)
            self._entries[entry] = _Entry(model, self.artifact.entries[entry], self._pairs)
        return self._entries[entry]

    def _hold(self, name: str, content: np.ndarray) -> None:
        if name in self._pairs:
            self._pairs[name].content[...] = content
        else:
            self._pairs[name] = _Pair(content)

    def _held(self, name: str) -> np.ndarray:
        return self._pairs[name].content

    def _constants_changed(self) -> None:
        self._entries.clear()

    def _release(self) -> None:
        self._entries, self._pairs = {}, {}
