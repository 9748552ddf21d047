"""An artifact's data inputs: names, and rows per batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.backends.artifact import Artifact
from pockengine.backends.session import to_numpy
from pockengine.compiler.controls import CONTROLS
from pockengine.compiler.ir.scalars import widens
from pockengine.compiler.ir.types import TensorType
from pockengine.errors import RuntimeFailure

Arrays = dict[str, np.ndarray]

ENTRIES = ("train", "evaluate", "predict")


@dataclass(frozen=True)
class Signature:
    """The data inputs of an artifact's entries, in the model's order.

    `by_entry` has the names that each entry reads. With a variable size, `inputs` have the largest,
    `free` is the variable dimension of each, and `low` the minimum.
    """

    name: str
    inputs: Mapping[str, TensorType]
    by_entry: Mapping[str, tuple[str, ...]]
    free: Mapping[str, int]
    low: int = 1

    @property
    def batch(self) -> int:
        """The maximum rows of a batch: those of the first input that is not a scalar."""
        return next((type_.shape[0] for type_ in self.inputs.values() if type_.shape), 1)

    @property
    def even(self) -> bool:
        """Whether a batch has the same number of rows of each input."""
        return all(type_.shape[0] == self.batch for type_ in self.inputs.values() if type_.shape)

    @property
    def varies(self) -> bool:
        """Whether the batch size is variable."""
        return any(axis == 0 for axis in self.free.values())

    @property
    def smallest(self) -> int:
        """The minimum number of rows in a step."""
        return self.low if self.varies else self.batch

    def reads(self, entry: str) -> tuple[str, ...]:
        """Return the names of an entry's data inputs; RuntimeFailure if there is no such entry."""
        if entry not in self.by_entry:
            known = ", ".join(self.by_entry)
            raise RuntimeFailure(f"{self.name} has no entry {entry!r}; it has {known}")
        return self.by_entry[entry]

    def named(self, item: Any, entry: str) -> Arrays:
        """Return an entry's inputs from a mapping by name, a tuple in the inputs' order, or a
        single array.

        A mapping within a tuple assigns by name, and the other elements fill the remaining inputs.
        RuntimeFailure names a missing input, or one that no entry reads.
        """
        values, places = self._apart(item)
        free = [name for name in self.inputs if name not in values]
        if len(places) > len(free):
            raise RuntimeFailure(
                f"a batch has {len(values) + len(places)} parts, but {self.name} has the inputs "
                f"{', '.join(self.inputs)}; leave the others out, or give a dict by name"
            )
        values.update(zip(free, places, strict=False))
        unknown = sorted(map(str, set(values) - set(self.inputs)))
        if unknown:
            raise RuntimeFailure(
                f"the data have {', '.join(unknown)}, which {self.name} does not read; its inputs "
                f"are {', '.join(self.inputs)}: rename or drop them"
            )
        expected = self.reads(entry)
        missing = [name for name in expected if name not in values]
        if missing:
            raise RuntimeFailure(
                f"the data have no {', '.join(missing)}; {entry} of {self.name} reads "
                f"{', '.join(expected)}"
            )
        return {name: to_numpy(name, values[name]) for name in expected}

    def _apart(self, item: Any) -> tuple[dict[str, Any], list[Any]]:
        """Split an item into its named and its positional parts."""
        if isinstance(item, Mapping):
            return dict(item), []
        if not isinstance(item, tuple | list):
            return {}, [item]
        values: dict[str, Any] = {}
        places = []
        for part in item:
            more, positional = (
                self._apart(part) if isinstance(part, Mapping | tuple) else ({}, [part])
            )
            values.update(more)
            places += positional
        return values, places

    def check(self, name: str, array: np.ndarray) -> None:
        """Raise RuntimeFailure unless rows have an input's dtype, and its shape except N.

        Narrower numbers are accepted.
        """
        type_ = self.inputs[name]
        if array.dtype != type_.dtype.numpy and not widens(array.dtype, type_.dtype):
            expected = type_.dtype.numpy.name
            raise RuntimeFailure(
                f"{name} has the dtype {array.dtype}, and {self.name} reads {expected}; convert it "
                f"by .astype(numpy.{expected})"
            )
        fixed = [axis for axis in range(1, len(type_.shape)) if axis != self.free.get(name)]
        ranks = array.ndim, max(len(type_.shape), 1)
        if ranks[0] != ranks[1] or any(array.shape[a] != type_.shape[a] for a in fixed):
            row = ", ".join(str(size) for size in type_.shape[1:])
            raise RuntimeFailure(
                f"{name} has the shape {list(array.shape)}, and {self.name} reads rows "
                f"[N{', ' + row if row else ''}]"
            )


def signature_of(artifact: Artifact) -> Signature:
    """Return an artifact's data inputs."""
    sizes = artifact.sizes
    specs = {}
    for entry in ENTRIES:
        name = entry if sizes is None else sizes.range.entry(entry, sizes.range.high)
        if name in artifact.entries:
            specs[entry] = _data(artifact.entries[name].inputs)
    inputs = {name: type_ for spec in specs.values() for name, type_ in spec.items()}
    free = {} if sizes is None else {n: a for n, a in sizes.range.axes.items() if n in inputs}
    low = 1 if sizes is None else sizes.range.low
    by_entry = {entry: tuple(spec) for entry, spec in specs.items()}
    return Signature(artifact.name, inputs, by_entry, free=free, low=low)


def _data(inputs: Mapping[str, TensorType]) -> dict[str, TensorType]:
    return {name: type_ for name, type_ in inputs.items() if name not in CONTROLS}
