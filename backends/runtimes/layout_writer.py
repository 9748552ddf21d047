"""Track the layouts in which each value of a graph is available, while a backend writes its nodes.

A form reads its operands in the layouts it needs and declares the layout of its result. Missing
layouts are made by a transpose, once. Elementwise forms adopt their operands' layout, so images
stay in the convolutions' layout, and transposes remain only at the borders.
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
"""A backend's handle of a tensor of its model."""


class LayoutWriter(ABC, Generic[Tensor]):
    """The tensors of one graph's values, by layout.

    `written` are the layouts of written params, the same in all graphs of a program: that of
    `settle.py`, else the one the first reader needs.
    """

    def __init__(self, graph: Graph, written: dict[str, Layout]) -> None:
        self.graph, self.written = graph, written
        self._laid_out: dict[Value, dict[Layout, Tensor]] = {}
        self._aligned: dict[tuple[Value, Layout], Tensor] = {}

    @abstractmethod
    def reshape(self, tensor: Tensor, shape: Shape) -> Tensor:
        """Reshape a tensor."""

    @abstractmethod
    def transpose(self, tensor: Tensor, perm: Layout) -> Tensor:
        """Transpose a tensor."""

    @abstractmethod
    def constant(self, data: np.ndarray) -> Tensor:
        """Return a constant, shared among equal arrays."""

    @abstractmethod
    def frozen(self, param: Param, layout: Layout) -> Tensor:
        """Return a frozen param in a layout."""

    @abstractmethod
    def content(self, param: Value, layout: Layout) -> Tensor:
        """Return a written param's content before the step, in its own layout."""

    @abstractmethod
    def write(self, param: Value, tensor: Tensor, layout: Layout) -> None:
        """Set the new content of a param to a tensor in this layout."""

    def layouts(self, value: Value) -> tuple[Layout, ...]:
        """The available layouts of a result or input; none for a param or constant."""
        if value in self.graph.constants or self.graph.param_of(value) is not None:
            return ()
        return tuple(self._laid_out.get(value, ()))

    def common_layout(self, values: Sequence[Value], shape: Shape) -> Layout:
        """The most common layout of the values with this shape.

        Params have the lowest priority, as they are available in any layout.
        """
        alike = [value for value in values if value.shape == shape]
        votes = Counter(layout for value in alike for layout in self.layouts(value))
        if not votes:
            settled = (self.written.get(value.name) for value in alike)
            votes = Counter(layout for layout in settled if layout is not None)
        return max(votes, key=lambda layout: votes[layout]) if votes else canonical(len(shape))

    def read(self, value: Value, layout: Layout | None = None) -> Tensor:
        """Return a value's tensor in this layout; by default in our own order."""
        layout = canonical(value.type.rank) if layout is None else layout
        copies = self._laid_out.setdefault(value, {})
        if layout not in copies:
            copies[layout] = self._make(value, layout)
        return copies[layout]

    def aligned(self, value: Value, layout: Layout) -> Tensor:
        """Read an operand that broadcasts against tensors in this layout."""
        rank, target_rank = value.type.rank, len(layout)
        if rank == target_rank:
            return self.read(value, layout)
        if rank == 0 or layout == canonical(target_rank):
            return self.read(value)
        if (value, layout) not in self._aligned:
            lead = target_rank - rank
            tensor = self.read(value, ranked([axis for axis in layout if axis >= lead]))
            shape = laid_out((1,) * lead + value.shape, layout)
            self._aligned[value, layout] = self.reshape(tensor, shape)
        return self._aligned[value, layout]

    def bind(self, value: Value, tensor: Tensor, layout: Layout | None = None) -> None:
        """Bind a result to a tensor in a layout."""
        layout = canonical(value.type.rank) if layout is None else layout
        self._laid_out[value] = {layout: tensor}

    def share(self, value: Value, other: Value) -> None:
        """Bind a result to another value of the same type."""
        layout = self.common_layout([other], other.shape)
        self.bind(value, self.read(other, layout), layout)

    def own_layout(self, name: str, default: Layout) -> Layout:
        """Return the layout of a written param: this one, if none was chosen before."""
        return self.written.setdefault(name, default)

    def _make(self, value: Value, layout: Layout) -> Tensor:
        """Return a new tensor of the value in a layout that is not available yet."""
        data = self.graph.constants.get(value)
        if data is not None:
            return self.constant(data.transpose(layout))
        param, copies = self.graph.param_of(value), self._laid_out[value]
        if param is not None and param.space is Space.CONSTANT:
            return self.frozen(param, layout)
        if param is not None and not copies:
            own = self.own_layout(value.name, layout)
            copies[own] = self.content(value, own)
            if own == layout:
                return copies[own]
        source, tensor = next(iter(copies.items()))
        if moves_nothing(value.shape, source, layout):
            return self.reshape(tensor, laid_out(value.shape, layout))
        return self.transpose(tensor, between(source, layout))


class Operands(Generic[Tensor]):
    """An elementwise node's operands, read in their most common layout."""

    def __init__(self, w: LayoutWriter[Tensor], node: Node) -> None:
        self.w, self.node = w, node
        self.layout = w.common_layout(node.operands, node.result.shape)
        self.tensors = [w.aligned(value, self.layout) for value in node.operands]

    def give(self, tensor: Tensor) -> None:
        """Bind the result."""
        self.w.bind(self.node.result, tensor, self.layout)
