"""Checkpoints of Python sessions, in the C runtime's format: they move between backends."""

from collections.abc import Set
from pathlib import Path

import numpy as np

from pockengine import __version__
from pockengine.backends.artifact import Artifact
from pockengine.backends.checkpoint import Arrays, checksum_of, read_sealed, sealed
from pockengine.backends.checkpoint_texts import read_texts, texts_of
from pockengine.backends.session import Progress
from pockengine.compiler.ir.contents import mapped
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.errors import ArtifactError, RuntimeFailure, TrainingDiverged, reason_of
from pockengine.files import write_whole


def load_checkpoint(artifact: Artifact, path: Path) -> tuple[Arrays, Progress]:
    """Read all params and the progress; RuntimeFailure for damage or a mismatch."""
    try:
        params, texts = read_sealed(artifact, path)
        return params, read_texts(texts)
    except ArtifactError as error:
        raise RuntimeFailure(str(error)) from error
    except (ValueError, LookupError) as error:
        raise RuntimeFailure(f"checkpoint {path} cannot be read: {error}") from error


def save_checkpoint(
    artifact: Artifact,
    params: Arrays,
    written: Set[str],
    progress: Progress,
    path: Path,
    *,
    whole: bool = False,
) -> None:
    """Write the params and states in `written`, and the progress; with `whole` all params.

    TrainingDiverged if one that was finite no longer is: then nothing is written.
    """
    trained = {name: array for name, array in params.items() if name in written}
    _check_finite(artifact, trained, path)
    frozen = {name: array for name, array in params.items() if name not in written}
    texts = {
        **texts_of(progress),
        "pockengine.content": "whole" if whole else "trained",
        "pockengine.frozen": checksum_of(frozen),
        "pockengine.name": artifact.name,
        "pockengine.program": artifact.specification().digest(),
        "pockengine.runtime": __version__,
    }

    def write(part: Path) -> None:
        with part.open("wb") as file:
            file.writelines(sealed(params if whole else trained, texts))

    try:
        write_whole(path, write)
    except OSError as error:
        raise RuntimeFailure(f"checkpoint {path} cannot be written: {reason_of(error)}") from error


def _check_finite(artifact: Artifact, trained: Arrays, path: Path) -> None:
    odd = [name for name, array in trained.items() if not np.isfinite(numbers_of(array)).all()]
    first = mapped(artifact.weights) if odd else {}
    for name in odd:
        if np.isfinite(numbers_of(first[name].read())).all():
            raise TrainingDiverged(
                f"{path} is not written: {name} is not finite, so the training diverged; take a "
                "lower rate from the last checkpoint on"
            )
