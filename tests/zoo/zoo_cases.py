"""A model of the zoo: a module, the arguments of its forward pass, and its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

BATCH, WORDS, LENGTH, CLASSES, SIDE = 2, 60, 12, 3, 32


@dataclass(frozen=True)
class Case:
    """A module in training mode. If `loss` is None, forward returns it, from labels in `inputs`."""

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    loss: str | None = None
    target: torch.Tensor | None = None


Builder = Callable[[], Case]


def words(batch: int = BATCH, length: int = LENGTH, size: int = WORDS) -> torch.Tensor:
    """Draw random token ids above the special tokens of models."""
    return torch.randint(5, size, (batch, length))


def labels(*shape: int, classes: int = CLASSES) -> torch.Tensor:
    """Draw random classes."""
    return torch.randint(classes, shape)


def pictures(batch: int = BATCH, side: int = SIDE, channels: int = 3) -> torch.Tensor:
    """Draw random images, channels first."""
    return torch.randn(batch, channels, side, side)
