"""Sessions of ONNX models: ONNX Runtime computes, and trained params stay bound to it.

Each written param has two arrays. An entry reads one and writes the other, then they swap: nothing
is copied, and no node can read new contents too early.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.backends.artifact import Artifact, EntrySpec
from pockengine.backends.onnx.bindings import CONSTANTS, CUT, NEXT, model_name, update_name
from pockengine.backends.onnx.models_session import ModelsSession
from pockengine.backends.onnx.runtime import OnnxModel, Placed, Provider, import_runtime


class _Pair:
    """A written param: its current array, and the one that the next step writes."""

    def __init__(self, content: np.ndarray) -> None:
        self.side = 0
        self._sides = (content, np.empty_like(content))

    @property
    def content(self) -> np.ndarray:
        """The current array."""
        return self._sides[self.side]

    @property
    def next(self) -> np.ndarray:
        """The array that the next step writes."""
        return self._sides[1 - self.side]

    def swap(self) -> None:
        """Make the written array the current one."""
        self.side = 1 - self.side


class _Part:
    """A model with its input and output arrays; all others are params."""

    def __init__(
        self,
        model: OnnxModel,
        inputs: dict[str, np.ndarray],
        outputs: dict[str, np.ndarray],
        pairs: dict[str, _Pair],
    ) -> None:
        self.model = model
        self._inputs = {name: inputs[name] for name in model.inputs if name in inputs}
        self._outputs = {name: outputs[name] for name in model.outputs if name in outputs}
        self._read = {name: pairs[name] for name in model.inputs if name not in inputs}
        news = (name for name in model.outputs if name not in outputs)
        self._written = {name: pairs[name.removeprefix(NEXT)] for name in news}
        self._bindings: dict[tuple[int, ...], Any] = {}

    def run(self) -> None:
        """Run the model once, into its arrays and the params."""
        self.model.run(self._binding())
        for pair in self._written.values():
            pair.swap()

    def _binding(self) -> Any:
        """The binding for the present arrays of the params; only a few combinations occur."""
        sides = tuple(pair.side for pair in (*self._read.values(), *self._written.values()))
        if sides not in self._bindings:
            read = {name: pair.content for name, pair in self._read.items()}
            written = {name: pair.next for name, pair in self._written.items()}
            self._bindings[sides] = self.model.bind(
                {**self._inputs, **read}, {**self._outputs, **written}
            )
        return self._bindings[sides]


class _Entry:
    """An entry's models, in sequence, with arrays for its data and results."""

    def __init__(self, models: list[OnnxModel], spec: EntrySpec, pairs: dict[str, _Pair]) -> None:
        self._inputs = {name: np.empty(t.shape, t.dtype.numpy) for name, t in spec.inputs.items()}
        self._outputs = {name: np.empty(t.shape, t.dtype.numpy) for name, t in spec.outputs.items()}
        cuts = {name: array for model in models for name, array in model.allocate(CUT).items()}
        sources, targets = {**self._inputs, **cuts}, {**self._outputs, **cuts}
        self.parts = [_Part(model, sources, targets, pairs) for model in models]

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run the models once, into the outputs and the params."""
        for buffer, array in zip(self._inputs.values(), inputs, strict=True):
            buffer[...] = array
        for part in self.parts:
            part.run()
        for array, buffer in zip(outputs, self._outputs.values(), strict=True):
            array[...] = buffer


class OnnxSession(ModelsSession):
    """An artifact's models, loaded by ONNX Runtime.

    A provider computes the nodes it supports, except updates in separate models.
    """

    def __init__(
        self, artifact: Artifact, threads: int = 1, provider: Provider | None = None
    ) -> None:
        self._provider = provider
        self._pairs: dict[str, _Pair] = {}
        self._entries: dict[str, _Entry] = {}
        super().__init__(artifact, threads)
        import_runtime()
        folder = artifact.folder / "code"
        names = [part for name in artifact.entries for part in (name, update_name(name))]
        paths = {name: folder / model_name(name) for name in names}
        self._models = {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    def _run_model(
        self, entry: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        self._opened(entry).run(inputs, outputs)

    def _opened(self, entry: str) -> _Entry:
        """The entry's model, loaded on first use."""
        if entry not in self._entries:
            places = {entry: self._provider, update_name(entry): None}
            models = [
                self._read(name, where) for name, where in places.items() if name in self._models
            ]
            self._entries[entry] = _Entry(models, self.artifact.entries[entry], self._pairs)
        return self._entries[entry]

    def _read(self, name: str, provider: Provider | None) -> OnnxModel:
        beside = {CONSTANTS: self._constants}
        return OnnxModel(name, self._models[name], beside, threads=self.threads, provider=provider)

    def placed(self, entry: str) -> list[Placed]:
        """Return the provider of each node of an entry, except its updates, which run on the
        CPU.
        """
        with self._locked():
            self._check_open()
            return self._opened(entry).parts[0].model.placed()

    def _set_content(self, name: str, content: np.ndarray) -> None:
        if name in self._pairs:
            self._pairs[name].content[...] = content
        else:
            self._pairs[name] = _Pair(content)

    def _content(self, name: str) -> np.ndarray:
        return self._pairs[name].content

    def _constants_changed(self) -> None:
        self._entries.clear()

    def _release(self) -> None:
        self._entries, self._pairs = {}, {}
