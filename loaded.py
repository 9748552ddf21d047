"""Artifacts that were compiled before: `pockengine.load` opens a folder without its model."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, load_artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.errors import ArtifactError
from pockengine.files import write_whole


@dataclass(frozen=True, repr=False)
class Loaded:
    """An artifact without the model that it was compiled from.

    What gives weights back takes them from a session, or from a checkpoint of the runner or of a
    session. LoRA's adapters are params of their own here: only `Compiled` knows what to merge.
    """

    artifact: Artifact

    def __repr__(self) -> str:
        return f"Loaded: {self.artifact}"

    def session(self, threads: int = 1) -> Session:
        """Open the artifact on this machine; it must have been compiled for `host`."""
        return open_session(self.artifact, threads)

    def weights(self, source: Session | Path | str) -> dict[str, np.ndarray]:
        """Return the model's weights by its names, in its order of dimensions."""
        values = (
            source.params()
            if isinstance(source, Session)
            else read_checkpoint(self.artifact, Path(source))
        )
        specs = self.artifact.params
        return {
            name: _in_model_order(array, specs[name].permutation)
            for name, array in values.items()
            if specs[name].kind == "param"
        }

    def save_weights(self, source: Session | Path | str, path: Path | str) -> None:
        """Write the model's weights as safetensors: the old file or the new one, at any moment."""
        arrays = self.weights(source)
        try:
            write_whole(Path(path), lambda part: save_file(arrays, part))
        except (OSError, SafetensorError) as error:
            raise ArtifactError(f"weights {path} cannot be written: {error}") from error


def load(folder: Path | str) -> Loaded:
    """Open an artifact's folder; ArtifactError names what is missing or damaged."""
    return Loaded(load_artifact(Path(folder)))


def _in_model_order(array: np.ndarray, permutation: tuple[int, ...] | None) -> np.ndarray:
    if permutation is None:
        return array
    return np.ascontiguousarray(array.transpose(np.argsort(permutation)))
