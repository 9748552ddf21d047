"""Data to tune on: examples, split into training, validation and test.

Choices (rates, sensitivity, search) get a `Tuning`, which has no test examples. Only a `Task` has
them; only the study reads it, once per final scheme.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pockengine.errors import FinetuneError
from pockengine.finetune.data_files import read_arrays

TARGET = "target"
"""Name of the labels in data files and among a graph's inputs."""
IGNORED = -100
"""Label of a token that does not count in the loss."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs by name, each [N, ...], and labels i64 [N], or [N, L] of tokens."""

    inputs: Mapping[str, np.ndarray]
    labels: np.ndarray

    def __post_init__(self) -> None:
        if self.labels.ndim not in (1, 2) or self.labels.dtype != np.int64 or not len(self.labels):
            raise FinetuneError(
                f"labels must be i64 [N] or [N, L] with N > 0, not {self.labels.dtype}"
                f"{list(self.labels.shape)}"
            )
        for name, array in self.inputs.items():
            if array.shape[:1] != self.labels.shape[:1]:
                raise FinetuneError(
                    f"input {name} has shape {list(array.shape)}, but there are "
                    f"{len(self.labels)} labels"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: np.ndarray) -> "Examples":
        """Return the examples at these indices, in this order."""
        inputs = {name: np.asarray(array[index]) for name, array in self.inputs.items()}
        return Examples(inputs, np.asarray(self.labels[index]))

    def joined(self, others: "Examples") -> "Examples":
        """Return the concatenation of these examples and others with the same input names."""
        pairs = {name: [array, others.inputs[name]] for name, array in self.inputs.items()}
        inputs = {name: np.concatenate(pair) for name, pair in pairs.items()}
        return Examples(inputs, np.concatenate([self.labels, others.labels]))

    def digest(self) -> str:
        """Return the SHA-256 of names, types and contents."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        whole = hashlib.sha256()
        for name, array in sorted({**self.inputs, TARGET: self.labels}.items()):
            whole.update(f"{name} {array.dtype} {array.shape}\n".encode())
            whole.update(np.ascontiguousarray(array).data)
        return whole.hexdigest()


@dataclass(frozen=True, eq=False)
class Tuning:
    """Data for choices: training and evaluation examples, without a test set."""

    train: Examples
    validation: Examples


@dataclass(frozen=True, eq=False)
class Task:
    """A data set of `classes` labels, with a test set for final schemes only."""

    name: str
    classes: int
    tuning: Tuning
    test: Examples


def split(examples: Examples, validation: int, seed: int) -> Tuning:
    """Hold out `validation` random examples, with about the same share of every label."""
    count = len(examples)
    if not 0 < validation < count:
        raise FinetuneError(
            f"{validation} of {count} examples cannot be set apart: both parts need some"
        )
    mixed = np.random.default_rng([seed, count]).permutation(count)
    order = mixed[np.argsort(examples.labels[mixed], kind="stable")]  # by label, each shuffled
    middles = (np.arange(validation) * 2 + 1) * count // (2 * validation)
    apart = np.zeros(count, bool)
    apart[order[middles]] = True
    return Tuning(examples.take(np.flatnonzero(~apart)), examples.take(np.flatnonzero(apart)))


def load_examples(path: Path) -> Examples:
    """Read rows of the model's inputs and of `target`, each [N, ...].

    The path is an .npz or .safetensors file, or a folder with a file NAME.npy for each.
    """
    arrays = read_arrays(path)
    if TARGET not in arrays:
        raise FinetuneError(f"{path} has no array {TARGET!r}; it has {', '.join(arrays) or 'none'}")
    labels = arrays.pop(TARGET)
    if not np.issubdtype(labels.dtype, np.integer) or not arrays:
        raise FinetuneError(f"{path}: {TARGET} must hold integers, beside at least one input")
    if labels.ndim != 1:
        raise FinetuneError(f"{path}: {TARGET} is {list(labels.shape)}; give one label a row, [N]")
    return Examples(arrays, labels.astype(np.int64))


def load_tuning(train: Path, validation_share: float, seed: int) -> Tuning:
    """Read a data file and hold out a share of its examples for evaluation."""
    examples = load_examples(train)
    if not 0 < validation_share < 1:
        raise FinetuneError(f"the share of validation is {validation_share:g}; give one in (0, 1)")
    return split(examples, max(1, round(validation_share * len(examples))), seed)


def load_task(train: Path, test: Path, validation_share: float, seed: int) -> Task:
    """Read a data file to tune on, and a test file for final schemes."""
    tuning = load_tuning(train, validation_share, seed)
    classes = int(max(tuning.train.labels.max(), tuning.validation.labels.max())) + 1
    return Task(train.stem, classes, tuning, load_examples(test))
