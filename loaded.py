"""Artifacts that were compiled before: `pockengine.load` opens a folder without its model."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.session import Session
from pockengine.backends.stored import decoded
from pockengine.backends.training.trainer import Trainer
from pockengine.boundary import entry_points
from pockengine.compiler.sparse.lora import merged
from pockengine.errors import ArtifactError
from pockengine.files import write_whole


@dataclass(frozen=True, repr=False)
class Loaded(Trainer):
    """An artifact without the model that it was compiled from.

    What gives weights back takes them from a session, or from a checkpoint of the runner or of a
    session. LoRA's products are merged into their weights.
    """

    artifact: Artifact

    def __repr__(self) -> str:
        return f"Loaded: {self.artifact}"

    def weights(self, source: Session | Path | str | None = None) -> dict[str, np.ndarray]:
        """Return the model's weights by its names, in its order of dimensions.

        They are those that `fit` trained, unless a session or a checkpoint is given.
        """
        source = self.trained if source is None else source
        values = (
            source.params()
            if isinstance(source, Session)
            else read_checkpoint(self.artifact, Path(source))
        )
        specs = self.artifact.params
        return {
            name: _in_model_order(array, specs[name].permutation)
            for name, array in self._merged(decoded(specs, values)).items()
            if specs[name].kind == "param"
        }

    def _merged(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add LoRA's products; ArtifactError for a weight that the artifact has not as it was."""
        adapters = self.artifact.adapters
        folded = [adapter.weight for adapter in adapters if adapter.weight not in values]
        if folded:
            raise ArtifactError(
                f"{folded[0]} was folded away when {self.artifact.name} was compiled, and its "
                "adapter is merged into it: give the model, by `pockengine export --model`, or to "
                "pockengine.compile"
            )
        return merged(adapters, values)

    def save_weights(self, source: Session | Path | str, path: Path | str) -> None:
        """Write the model's weights as safetensors: the old file or the new one, at any moment."""
        arrays = self.weights(source)
        try:
            write_whole(Path(path), lambda part: save_file(arrays, part))
        except (OSError, SafetensorError) as error:
            raise ArtifactError(f"weights {path} cannot be written: {error}") from error


entry_points(Loaded)


def load(folder: Path | str) -> Loaded:
    """Open an artifact's folder; ArtifactError names what is missing or damaged."""
    return Loaded(load_artifact(Path(folder)))


def _in_model_order(array: np.ndarray, permutation: tuple[int, ...] | None) -> np.ndarray:
    if permutation is None:
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(permutation)))
