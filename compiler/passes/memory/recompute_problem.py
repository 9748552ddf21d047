"""The choice of activations to recompute, as numbers: sizes, costs, and the kernels that read them.

The order of the kernels is fixed, and a value is recomputed at most once, right before the backward
pass reads it or another recomputation does.
"""

import math
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Activation:
    """A large value of the forward pass, of `size` bytes.

    Kernel `made` computes it, and `until` is its last reader of the forward pass. The kernels
    `first` to `last` of the backward pass read it; None if none does, and it only helps to
    recompute others. To recompute it takes `cost` multiply-adds, the `operands` (positions of
    earlier activations), and `scratch` bytes of values in between. An infinite cost forbids it.
    """

    size: int
    cost: float
    operands: tuple[int, ...]
    made: int
    until: int
    first: int | None = None
    last: int | None = None
    scratch: int = 0


@dataclass(frozen=True)
class Problem:
    """Activations in the order of the forward pass, up to the kernel `loss`.

    `live` are the other bytes alive at each kernel, and `between` those alive right before it.
    """

    activations: tuple[Activation, ...]
    loss: int
    live: tuple[int, ...]
    between: tuple[int, ...]

    @cached_property
    def readers(self) -> list[list[int]]:
        """Activations whose recomputation reads each activation."""
        found: list[list[int]] = [[] for _ in self.activations]
        for place, each in enumerate(self.activations):
            for operand in each.operands:
                found[operand].append(place)
        return found

    @cached_property
    def moments(self) -> list[int]:
        """Kernels before which what is alive may change: first readers, and ends of last ones."""
        read = [each for each in self.activations if each.first is not None]
        ends = {each.last + 1 for each in read if each.last is not None}
        firsts = {each.first for each in read if each.first is not None}
        return sorted(firsts | {end for end in ends if end < len(self.live)})

    @cached_property
    def rises(self) -> list[list[int]]:
        """Positions of the moments at which each activation may be recomputed, in order."""
        at = {kernel: place for place, kernel in enumerate(self.moments)}
        found: list[set[int]] = [set() for _ in self.activations]
        for place in reversed(range(len(self.activations))):
            each = self.activations[place]
            later = set[int]().union(*(found[reader] for reader in self.readers[place]))
            if each.first is not None:
                last = at[each.first]
                later = {last, *(moment for moment in later if moment <= last)}
            found[place] = later
        return [
            sorted(moments) if math.isfinite(each.cost) else []
            for each, moments in zip(self.activations, found, strict=True)
        ]
