"""Remembers in which layouts each value of a graph is held, while a backend writes its nodes.

A form reads its operands in the layouts that it wants and says in which one its result lies. What
is not held so is transposed, once. Elementwise forms go along with their operands, so images stay
as convolutions want them, and transposes meet at the borders alone.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from pockengine.backends.runtimes.layout import (
    Layout,
    between,
    canonical,
    laid_out,
    moves_nothing,
    ranked,
)
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.graph import Graph, Param, Space
from pockengine.compiler.ir.types import Shape

Tensor = TypeVar("Tensor")
"""What a backend knows a tensor of its model by."""


class LayoutWriter(ABC, Generic[Tensor]):
    """Which tensors hold the values of one graph.

    `written` are the layouts of params that training writes, the same in all graphs of a program:
    what `settle.py` says, else what the first reader wants.
    """

    def __init__(self, graph: Graph, written: dict[str, Layout]) -> None:
        self.graph, self.written = graph, written
        self._laid_out: dict[Value, dict[Layout, Tensor]] = {}
        self._aligned: dict[tuple[Value, Layout], Tensor] = {}

    @abstractmethod
    def reshape(self, tensor: Tensor, shape: Shape) -> Tensor:
        """Give a tensor another shape."""

    @abstractmethod
    def transpose(self, tensor: Tensor, perm: Layout) -> Tensor:
        """Put a tensor's dimensions in another order."""

    @abstractmethod
    def constant(self, data: np.ndarray) -> Tensor:
        """Return a constant, the same for equal arrays."""

    @abstractmethod
    def frozen(self, param: Param, layout: Layout) -> Tensor:
        """Return a param that nothing writes, in a layout."""

    @abstractmethod
    def content(self, param: Value, layout: Layout) -> Tensor:
        """Return what a written param holds before the step, in its own layout."""

    @abstractmethod
    def write(self, param: Value, tensor: Tensor, layout: Layout) -> None:
        """Make a tensor in this layout the new content of a param."""

    def layouts(self, value: Value) -> tuple[Layout, ...]:
        """The layouts in which a result or input is held; none of a param or constant."""
        if value in self.graph.constants or self.graph.param_of(value) is not None:
            return ()
        return tuple(self._laid_out.get(value, ()))

    def common_layout(self, values: Sequence[Value], shape: Shape) -> Layout:
        """The layout that most of those values lie in which have this shape.

        Params come last, as they may be wanted in any layout.
        """
        alike = [value for value in values if value.shape == shape]
        votes = Counter(layout for value in alike for layout in self.layouts(value))
        if not votes:
            settled = (self.written.get(value.name) for value in alike)
            votes = Counter(layout for layout in settled if layout is not None)
        return max(votes, key=lambda layout: votes[layout]) if votes else canonical(len(shape))

    def read(self, value: Value, layout: Layout | None = None) -> Tensor:
        """Return what holds a value in this layout; without one, as it is ours."""
        layout = canonical(value.type.rank) if layout is None else layout
        held = self._laid_out.setdefault(value, {})
        if layout not in held:
            held[layout] = self._make(value, layout)
        return held[layout]

    def aligned(self, value: Value, layout: Layout) -> Tensor:
        """Read an operand that broadcasts against tensors in this layout."""
        rank, wanted = value.type.rank, len(layout)
        if rank == wanted:
            return self.read(value, layout)
        if rank == 0 or layout == canonical(wanted):
            return self.read(value)
        if (value, layout) not in self._aligned:
            lead = wanted - rank
            tensor = self.read(value, ranked([axis for axis in layout if axis >= lead]))
            shape = laid_out((1,) * lead + value.shape, layout)
            self._aligned[value, layout] = self.reshape(tensor, shape)
        return self._aligned[value, layout]

    def bind(self, value: Value, tensor: Tensor, layout: Layout | None = None) -> None:
        """Say which tensor holds a result, in which layout."""
        layout = canonical(value.type.rank) if layout is None else layout
        self._laid_out[value] = {layout: tensor}

    def share(self, value: Value, other: Value) -> None:
        """Say that a result is another value of the same type."""
        layout = self.common_layout([other], other.shape)
        self.bind(value, self.read(other, layout), layout)

    def own_layout(self, name: str, wanted: Layout) -> Layout:
        """Return how a written param lies: as it is wanted, if nobody has wanted it before."""
        return self.written.setdefault(name, wanted)

    def _make(self, value: Value, layout: Layout) -> Tensor:
        """Return a tensor that holds the value so, which none does yet."""
        data = self.graph.constants.get(value)
        if data is not None:
            return self.constant(data.transpose(layout))
        param, held = self.graph.param_of(value), self._laid_out[value]
        if param is not None and param.space is Space.CONSTANT:
            return self.frozen(param, layout)
        if param is not None and not held:
            own = self.own_layout(value.name, layout)
            held[own] = self.content(value, own)
            if own == layout:
                return held[own]
        source, tensor = next(iter(held.items()))
        if moves_nothing(value.shape, source, layout):
            return self.reshape(tensor, laid_out(value.shape, layout))
        return self.transpose(tensor, between(source, layout))


class Operands(Generic[Tensor]):
    """An elementwise node's operands, read in the layout that most of them lie in."""

    def __init__(self, w: LayoutWriter[Tensor], node: Node) -> None:
        self.w, self.node = w, node
        self.layout = w.common_layout(node.operands, node.result.shape)
        self.tensors = [w.aligned(value, self.layout) for value in node.operands]

    def give(self, tensor: Tensor) -> None:
        """Bind the result."""
        self.w.bind(self.node.result, tensor, self.layout)
