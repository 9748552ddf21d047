"""The node that reads a weight with channels, and the channels' place in it.

A layer may read its weight reshaped: a 1D convolution as a 2D one of height 1, a 3D one with the
taps of its depth and its input channels on one axis.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import Shape
from pockengine.compiler.ops.registry import ChannelSet, lookup

Axes = tuple[int, ...]


@dataclass(frozen=True)
class ChannelReader:
    """The only reader of a weight; `chain` is the weight and its reshaped copies, as read last."""

    node: Node
    chain: tuple[Value, ...]

    @property
    def axis(self) -> int | None:
        """The weight's axis of channels; None if the reader has none there."""
        axes = self._axes
        return axes[-1] if axes else None

    @property
    def _axes(self) -> Axes:
        """The weight's axes on the reader's axis of channels, which are the innermost."""
        definition, value = lookup(self.node.op), self.chain[-1]
        rule = definition.channel_axis.get(definition.operand_name(self.node.operands.index(value)))
        place = None if rule is None else rule(self.node)
        groups = merged_axes(self.chain[0].shape, value.shape)
        return () if place is None or groups is None else groups[place]

    def part_shape(self, channels: ChannelSet) -> Shape:
        """Return the shape of these channels of the weight."""
        sizes = enumerate(self.chain[0].shape)
        return tuple(len(channels) if axis == self.axis else size for axis, size in sizes)

    def as_read(self, channels: ChannelSet) -> ChannelSet:
        """Return channels of the weight as channels of the value that the node reads."""
        shape, (*outer, axis) = self.chain[0].shape, self._axes
        copies = math.prod(shape[each] for each in outer)
        if copies == 1:
            return channels
        return tuple(copy * shape[axis] + channel for copy in range(copies) for channel in channels)


def channel_reader(
    users: Mapping[Value, Sequence[Node]], weight: Value
) -> ChannelReader | Sequence[Node]:
    """Return the reader of a weight, or all readers if they are not one."""
    chain = [weight]
    while len(readers := users.get(chain[-1], ())) == 1:
        if readers[0].op != "reshape":
            return ChannelReader(readers[0], tuple(chain))
        chain.append(readers[0].result)
    return readers


def before_reshapes(value: Value) -> Value:
    """Return the value of which this one is a reshaped copy, else itself."""
    while value.node is not None and value.node.op == "reshape":
        (value,) = value.node.operands
    return value


def merged_axes(shape: Shape, reshaped: Shape) -> list[Axes] | None:
    """Return the axes of `shape` that each axis of a reshaped array merges, outermost first.

    None if the reshape splits an axis. A new axis of size 1 has none.
    """
    found: list[Axes] = []
    start = 0
    for place, size in enumerate(reshaped, 1):
        stop = start + (size == 1 and _ones(shape[start:]) > 0)
        while math.prod(shape[start:stop]) < size:
            stop += 1
        if math.prod(shape[start:stop]) > size:
            return None
        if size > 1:  # axes of size 1 behind it that have no place of their own
            stop += max(0, _ones(shape[stop:]) - _ones(reshaped[place:]))
        found.append(tuple(range(start, stop)))
        start = stop
    return found


def _ones(shape: Shape) -> int:
    """Return the number of axes of size 1 before the first larger one."""
    return next((place for place, size in enumerate(shape) if size > 1), len(shape))
