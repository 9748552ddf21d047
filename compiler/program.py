"""Program: the compiler's output for a backend. Kernels in total order, each value with its offset.

A program has entries ("train", "predict") that share params, constants and one arena. Backends and
the runtime read it; it is independent of framework and device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pockengine.compiler.ir.graph import Graph, Node, Param, Value
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse.lora import Adapter
from pockengine.compiler.target import ALIGNMENT, Choice, InPlace


@dataclass(frozen=True)
class Allocation:
    """A region of the arena, in bytes; offsets are multiples of the target's alignment."""

    offset: int
    size: int


@dataclass(frozen=True)
class MemoryPlan:
    """Memory plan of an entry: the location of every input and result, and each node's scratch.

    `aliases` are reshapes of a param or constant, in its storage. `size` is this entry's arena in
    bytes; `lower_bound` is the largest sum of live bytes at any node, which no plan for the same
    order can beat. `in_place` is the target's field.
    """

    values: dict[Value, Allocation]
    scratch: dict[Node, Allocation]
    aliases: dict[Value, Value]
    size: int
    lower_bound: int
    in_place: InPlace = field(default_factory=InPlace)


@dataclass(frozen=True)
class Entry:
    """One function of the program: a lowered graph whose node order is the order of execution.

    `choices` is how the backend computes each node, on which the memory plan is based.
    """

    name: str
    graph: Graph
    plan: MemoryPlan
    choices: Mapping[Node, Choice] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Entries over shared params and constants.

    With `sizes` every entry has a variant for each bucket, named by `Range.entry`; `sized` are the
    variable dimensions of outputs, by entry and output. `params` are the weights and states by
    name, as the first entry that has them declares them; `constants` the non-scalar constants, by
    name, equal arrays shared (entries' constant values carry these names). Scalars are inlined in
    the kernels. With several `micro_batches` the entry `update` applies the mean gradient of that
    many runs of `train`. Offsets of params and in the arena are multiples of the target's
    `alignment`.
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
        """Bytes of the arena that all entries share, one at a time."""
        return max(entry.plan.size for entry in self.entries.values())
