"""What a model's file says of its own inputs, so that a file alone can be compiled."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Declared:
    """An input of a model: `shape` has None if the file leaves a size open."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        """Return the name with its shape, as name=?x3x224x224."""
        return f"{self.name}={'x'.join('?' if n is None else str(n) for n in self.shape)}"


@dataclass(frozen=True)
class OpenedModel:
    """A model of a file, as a frontend takes it; `named` tells whether by its inputs' names.

    `loss` is what the file says that the model is trained by; None if it does not say.
    """

    model: Any
    inputs: tuple[Declared, ...]
    named: bool = True
    loss: Any = None
