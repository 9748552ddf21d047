"""Input declarations of a model's file, so that a file alone can be compiled."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Declared:
    """An input of a model: `shape` has None for a size that the file leaves open."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        """Return the name with its shape, as name=?x3x224x224."""
        return f"{self.name}={'x'.join('?' if n is None else str(n) for n in self.shape)}"


@dataclass(frozen=True)
class OpenedModel:
    """A model loaded from a file; `named`: whether its inputs are passed by name.

    `loss` is the training loss in the file; None if it has none.
    """

    model: Any
    inputs: tuple[Declared, ...]
    named: bool = True
    loss: Any = None
