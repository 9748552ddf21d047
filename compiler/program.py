"""Program: what the compiler hands to a backend. Kernels in total order, each value at its place.

A program has entries ("train", "predict") that share params, constants and one arena. Backends and
the runtime read it; nothing in it belongs to a framework or a device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse.lora import Adapter
from pockengine.compiler.target import ALIGNMENT, Choice


@dataclass(frozen=True)
class Allocation:
    """A place in the arena, in bytes; offsets are multiples of the target's alignment."""

    offset: int
    size: int


@dataclass(frozen=True)
class MemoryPlan:
    """Where every input and result of an entry lives, and each node's scratch.

    `aliases` are the reshapes of a param or constant: other names of its storage. `size` is the
    arena's bytes for this entry; `lower_bound` the largest sum of bytes alive at any node, which
    no plan for the same order can beat. `overwrites` are the target's.
    """

    values: dict[Value, Allocation]
    scratch: dict[Node, Allocation]
    aliases: dict[Value, Value]
    size: int
    lower_bound: int
    overwrites: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One function of the program: a lowered graph whose node order is the order of execution.

    `choices` is how the backend computes each node: what the memory was planned for.
    """

    name: str
    graph: Graph
    plan: MemoryPlan
    choices: Mapping[Node, Choice] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Entries over shared params and constants.

    With `sizes` every entry has a variant for each bucket, named by `Range.entry`; `sized` are the
    dimensions of outputs that are the varying size, by entry and output.
    `params` are the weights and states by name, as the first entry that has them declares them;
    `constants` the non-scalar constants, by name, equal arrays shared (entries' constant values
    carry these names). Scalars are written into the kernels. With several `micro_batches` the entry
    `update` applies the mean of what so many runs of `train` have collected. Offsets of params and
    in the arena are multiples of the target's `alignment`.
    """

    name: str
    entries: dict[str, Entry]
    params: dict[str, Param]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    scheme: dict[str, str] = field(default_factory=dict)
    recomputation: Recomputation | None = None
    sizes: Range | None = None
    adapters: tuple[Adapter, ...] = ()
    micro_batches: int = 1
    alignment: int = ALIGNMENT
    sized: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena that all entries share, one after the other."""
        return max(entry.plan.size for entry in self.entries.values())
