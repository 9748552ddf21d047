"""What a model's file says of its own inputs, so that a file alone can be compiled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Declared:
    """An input of a model: `shape` has None where the file leaves a size open."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        """Return the name with its shape, as name=?x3x224x224."""
        return f"{self.name}={'x'.join('?' if n is None else str(n) for n in self.shape)}"


@dataclass(frozen=True)
class Opened:
    """A model of a file, as a door takes it; `named` tells whether by its inputs' names.

    `loss` is what the file says that the model is trained by; None where it does not say.
    """

    model: Any
    inputs: tuple[Declared, ...]
    named: bool = True
    loss: Any = None


def open_file(path: Path) -> Opened:
    """Open a file of ONNX, Keras or TFLite, or a SavedModel's folder.

    ImportModelError for what is damaged, or holds code.
    """
    if path.suffix == ".onnx":
        from pockengine.frontends.onnx.model import declared_inputs

        return Opened(path, declared_inputs(path))
    from pockengine.frontends.tensorflow.model import open_file as open_tensorflow

    return open_tensorflow(path)
