"""Barriers between the kernels of a step.

Every thread runs its share of each kernel, in order. A thread may run ahead into the next kernel if
that kernel reads no memory that other threads may still be writing, and writes none that they may
still be using. Weight updates, for example, need no barrier after them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ByteSpan:
    """Bytes [start, end) of one memory: the arena or the params."""

    memory: str
    start: int
    end: int

    def overlaps(self, other: "ByteSpan") -> bool:
        """Whether two spans overlap."""
        same = self.memory == other.memory
        return same and self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Touched:
    """The memory that one kernel reads and writes."""

    reads: Sequence[ByteSpan]
    writes: Sequence[ByteSpan]


@dataclass
class _Open:
    """The memory touched by kernels since the last barrier."""

    reads: list[ByteSpan] = field(default_factory=list)
    writes: list[ByteSpan] = field(default_factory=list)


def needs_barrier(kernels: Iterable[Touched]) -> list[bool]:
    """For each kernel in order, whether it needs a barrier before it."""
    found = []
    recent = _Open()
    for kernel in kernels:
        after_write = _any_overlap(recent.writes, [*kernel.reads, *kernel.writes])
        conflict = after_write or _any_overlap(recent.reads, kernel.writes)
        if conflict:
            recent = _Open()
        recent.reads += kernel.reads
        recent.writes += kernel.writes
        found.append(conflict)
    return found


def _any_overlap(some: Sequence[ByteSpan], others: Sequence[ByteSpan]) -> bool:
    return any(one.overlaps(other) for one in some for other in others)
