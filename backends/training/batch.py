"""Batches and data sources."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pockengine.backends.augmentation import Augmentation
from pockengine.backends.training.signature import Arrays


@dataclass(frozen=True)
class Batch:
    """Inputs of one run of an entry, with `rows` rows. `epoch` counts from 0; `last` ends it."""

    inputs: Arrays
    rows: int
    epoch: int = 0
    last: bool = False


@runtime_checkable
class DataSource(Protocol):
    """Data that training can iterate over repeatedly."""

    @property
    def rows(self) -> int:
        """Rows of an epoch; 0 if unknown."""

    @property
    def batch(self) -> int:
        """Rows per step; 0 if unknown."""

    @property
    def shuffled(self) -> bool:
        """Whether training shuffles the rows by seed and epoch."""

    @property
    def augmentation(self) -> Augmentation:
        """Augmentation of its images."""

    @property
    def batches(self) -> int | None:
        """Steps of an epoch, if known."""

    def training(self, seed: int, done: int, epochs: int | None) -> Iterator[Batch]:
        """Yield the training batches after the first `done`, to the end of the last epoch."""

    def once(self) -> Iterator[Batch]:
        """Yield every row once and in order; the last batch may be short."""
