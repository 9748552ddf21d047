"""Batches, and what gives them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pockengine.backends.augmentation import Augmentation
from pockengine.backends.training.signature import Arrays


@dataclass(frozen=True)
class Batch:
    """Inputs of one run of an entry, of `rows` rows. `epoch` counts from 0; `last` ends it."""

    inputs: Arrays
    rows: int
    epoch: int = 0
    last: bool = False


class DataSource(Protocol):
    """Data that training can go through again and again."""

    @property
    def rows(self) -> int:
        """Rows of an epoch; 0 where they are not known."""

    @property
    def batch(self) -> int:
        """Rows of a step; 0 where they are not known."""

    @property
    def shuffled(self) -> bool:
        """Whether training takes the rows in an order by seed and epoch."""

    @property
    def augmentation(self) -> Augmentation:
        """What is done to its pictures."""

    @property
    def batches(self) -> int | None:
        """Steps of an epoch, as far as they are known."""

    def training(self, seed: int, done: int, epochs: int | None) -> Iterator[Batch]:
        """Give the batches to train on behind the first `done`, to the end of the last epoch."""

    def once(self) -> Iterator[Batch]:
        """Give every row once and in order; the last batch may be short."""
