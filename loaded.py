"""Artifacts compiled earlier: `pockengine.load` opens a folder without its model."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.artifact import load_artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.session import Session
from pockengine.backends.stored import decoded
from pockengine.backends.training.trainer import Trainer
from pockengine.boundary import entry_points
from pockengine.compiler.sparse.lora import merged
from pockengine.errors import ArtifactError, reason_of
from pockengine.files import write_whole

Weights = Session | Path | str | None
"""The source of weights: a session, a checkpoint, or None for the session that `fit` trains."""


@dataclass(frozen=True, repr=False)
class Loaded(Trainer):
    """An artifact without the model that it was compiled from.

    Methods that export weights use those of `fit`, unless a session or a checkpoint (of the runner
    or of a session) is passed. LoRA products are merged into their weights.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.artifact}"

    def weights(self, source: Weights = None) -> dict[str, np.ndarray]:
        """Return the model's weights by its names, in its order of dimensions."""
        specs = self.artifact.params
        return {
            name: _in_model_order(array, specs[name].permutation)
            for name, array in self._merged(source).items()
            if specs[name].kind == "param"
        }

    def save_weights(self, source: Weights, path: Path | str) -> None:
        """Write the model's weights as safetensors, atomically."""
        arrays = self.weights(source)
        try:
            write_whole(Path(path), lambda part: save_file(arrays, part))
        except (OSError, SafetensorError) as error:
            raise ArtifactError(f"weights {path} cannot be written: {reason_of(error)}") from error

    def _merged(self, source: Weights) -> dict[str, np.ndarray]:
        """Add LoRA products; ArtifactError if the artifact has changed such a weight."""
        values, adapters = self._params(source), self.artifact.adapters
        folded = [adapter.weight for adapter in adapters if adapter.weight not in values]
        if folded:
            raise ArtifactError(
                f"{folded[0]} was folded away when {self.artifact.name} was compiled, and its "
                "adapter is merged into it: give the model, by `pockengine export --model`, or to "
                "pockengine.compile"
            )
        return merged(adapters, values)

    def _params(self, source: Weights) -> dict[str, np.ndarray]:
        """Return a session's or a checkpoint's parameters as real numbers, in the program's layout.

        The default is the session that `fit` trains.
        """
        source = self.trained if source is None else source
        if isinstance(source, Session):
            values = source.params()
        else:
            values = read_checkpoint(self.artifact, Path(source))
        return decoded(self.artifact.params, values)


entry_points(Loaded)


def load(folder: Path | str) -> Loaded:
    """Open an artifact's folder; ArtifactError names a missing or damaged file."""
    return Loaded(load_artifact(Path(folder)))


def _in_model_order(array: np.ndarray, permutation: tuple[int, ...] | None) -> np.ndarray:
    if permutation is None:
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(permutation)))
