"""The manifest's description of a variable size, checked against the entries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pockengine.compiler.ir.types import TensorType
from pockengine.compiler.sizes import Range


class Variant(Protocol):
    """Inputs and outputs of an entry by name."""

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Input types by name."""

    @property
    def outputs(self) -> Mapping[str, TensorType]:
        """Output types by name."""


@dataclass(frozen=True)
class SizesSpec:
    """A variable size: its range, and the dimensions of each entry's outputs that vary."""

    range: Range
    outputs: Mapping[str, Mapping[str, Sequence[int]]]

    def check(self, entries: Mapping[str, Variant]) -> None:
        """Raise ValueError unless each entry has a variant of each size, with these dimensions."""
        names = dict.fromkeys(name.rpartition("@")[0] for name in entries)
        variants = {
            self.range.entry(n, size): (n, size) for n in names for size in self.range.buckets
        }
        if set(variants) != set(entries):
            raise ValueError(f"{self.range.name}: the entries are not one for each of its buckets")
        inputs = {name for entry in entries.values() for name in entry.inputs}
        for name in self.range.axes:
            if name not in inputs:
                raise ValueError(f"{self.range.name}: no entry has an input {name!r}")
        for variant, (name, size) in variants.items():
            for tensor, type_, axis in self._places(name, entries[variant]):
                if type_.shape[axis : axis + 1] != (size,):
                    raise ValueError(
                        f"{self.range.name}: dimension {axis} of {tensor} {type_} of {variant} is "
                        f"not {size}"
                    )

    def _places(self, name: str, entry: Variant) -> Iterator[tuple[str, TensorType, int]]:
        """Yield the tensors of a variant of the entry `name`, and their variable dimensions."""
        for tensor, axis in self.range.axes.items():
            if tensor in entry.inputs:
                yield tensor, entry.inputs[tensor], axis
        for tensor, axes in self.outputs.get(name, {}).items():
            if tensor in entry.outputs:
                yield from ((tensor, entry.outputs[tensor], axis) for axis in axes)
