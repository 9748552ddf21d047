"""Forms that work in any layout of their operand, shared by all runtimes.

A runtime implements moves and reductions of a tensor; axes and shapes passed to it are in the
tensor's layout.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pockengine.backends.runtimes.layout import Layout, canonical, laid_out, without
from pockengine.backends.runtimes.layout_writer import LayoutWriter
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.types import DType, Shape

Writer = TypeVar("Writer", bound=LayoutWriter[Any])
Tensor = TypeVar("Tensor")
Form = Callable[[Writer, Node], None]
Span = tuple[int, int, int]
"""Start, stop and step along an axis."""


def layout_of(w: LayoutWriter[Any], x: Value) -> Layout:
    """Return the layout of a value."""
    return w.common_layout([x], x.shape)


class LaidOutForms(ABC, Generic[Writer, Tensor]):
    """Forms of ops that move elements, reduce them, or assign them to a param."""

    reductions: Mapping[str, str]
    """Operators of the runtime, by reduction op."""

    @abstractmethod
    def expand(self, w: Writer, x: Tensor, shape: Shape) -> Tensor:
        """Broadcast a tensor to a shape."""

    @abstractmethod
    def concat(self, w: Writer, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Concatenate tensors."""

    @abstractmethod
    def pad(
        self, w: Writer, x: Tensor, low: Shape, high: Shape, value: float, dtype: DType
    ) -> Tensor:
        """Pad a tensor with a number."""

    @abstractmethod
    def slice(self, w: Writer, x: Tensor, spans: Mapping[int, Span]) -> Tensor:
        """Slice some axes of a tensor."""

    @abstractmethod
    def reverse(self, w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Reverse axes."""

    @abstractmethod
    def pick(self, w: Writer, x: Tensor, index: Sequence[int], axis: int) -> Tensor:
        """Select slices of an axis at constant indices."""

    @abstractmethod
    def reduce(
        self, w: Writer, op: str, x: Tensor, axes: Sequence[int], keep: bool, shape: Shape
    ) -> Tensor:
        """Reduce axes, possibly none, with an operator of the runtime."""

    @abstractmethod
    def argmax(self, w: Writer, x: Tensor, axis: int, shape: Shape, dtype: DType) -> Tensor:
        """Return the index of the largest element along an axis."""

    @abstractmethod
    def cumsum(self, w: Writer, x: Tensor, axis: int, reverse: bool) -> Tensor:
        """Cumulative sum along an axis."""

    def forms(self) -> dict[str, Form[Writer]]:
        """Return the table of these forms."""
        return {
            "argmax": self._argmax,
            "assign": self._assign,
            "broadcast_to": self._broadcast_to,
            "concat": self._concat,
            "cumsum": self._cumsum,
            "pad": self._pad,
            "pick": self._pick,
            "reshape": self._reshape,
            "reverse": self._reverse,
            "slice": self._slice,
            "stop_gradient": self._share,
            "transpose": self._transpose,
            **dict.fromkeys(self.reductions, self._reduce),
        }

    def _reshape(self, w: Writer, node: Node) -> None:
        w.bind(node.result, w.reshape(w.read(node.operands[0]), node.result.shape))

    def _share(self, w: Writer, node: Node) -> None:
        w.share(node.result, node.operands[0])

    def _transpose(self, w: Writer, node: Node) -> None:
        """Move nothing: the result has another layout, and is transposed only if needed."""
        (x,), perm = node.operands, node.attrs["perm"]
        layout = layout_of(w, x)
        w.bind(node.result, w.read(x, layout), tuple(perm.index(axis) for axis in layout))

    def _broadcast_to(self, w: Writer, node: Node) -> None:
        (x,), shape = node.operands, node.result.shape
        layout = layout_of(w, x) if len(x.shape) == len(shape) else canonical(len(shape))
        tensor = self.expand(w, w.aligned(x, layout), laid_out(shape, layout))
        w.bind(node.result, tensor, layout)

    def _concat(self, w: Writer, node: Node) -> None:
        largest = max(node.operands, key=lambda value: value.type.size)
        layout = layout_of(w, largest)
        tensors = [w.read(value, layout) for value in node.operands]
        w.bind(node.result, self.concat(w, tensors, layout.index(node.attrs["axis"])), layout)

    def _pad(self, w: Writer, node: Node) -> None:
        (x,), attrs = node.operands, node.attrs
        layout = layout_of(w, x)
        low, high = (laid_out(attrs[side], layout) for side in ("low", "high"))
        tensor = self.pad(w, w.read(x, layout), low, high, value=attrs["value"], dtype=x.dtype)
        w.bind(node.result, tensor, layout)

    def _slice(self, w: Writer, node: Node) -> None:
        (x,), attrs = node.operands, node.attrs
        layout = layout_of(w, x)
        bounds = zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)
        spans = {
            layout.index(axis): span
            for axis, span in enumerate(bounds)
            if span != (0, x.shape[axis], 1)
        }
        w.bind(node.result, self.slice(w, w.read(x, layout), spans), layout)

    def _reverse(self, w: Writer, node: Node) -> None:
        (x,) = node.operands
        layout = layout_of(w, x)
        axes = [layout.index(axis) for axis in node.attrs["axes"]]
        w.bind(node.result, self.reverse(w, w.read(x, layout), axes), layout)

    def _pick(self, w: Writer, node: Node) -> None:
        (x,), attrs = node.operands, node.attrs
        layout = layout_of(w, x)
        tensor = self.pick(w, w.read(x, layout), attrs["index"], layout.index(attrs["axis"]))
        w.bind(node.result, tensor, layout)

    def _reduce(self, w: Writer, node: Node) -> None:
        (x,), axes, keep = node.operands, node.attrs["axes"], node.attrs["keepdims"]
        layout = layout_of(w, x)
        places = sorted(layout.index(axis) for axis in axes)
        result = layout if keep else without(layout, axes)
        shape = laid_out(node.result.shape, result)
        tensor = self.reduce(
            w, self.reductions[node.op], w.read(x, layout), axes=places, keep=keep, shape=shape
        )
        w.bind(node.result, tensor, result)

    def _argmax(self, w: Writer, node: Node) -> None:
        (x,), axis = node.operands, node.attrs["axis"]
        layout = layout_of(w, x)
        result = without(layout, [axis])
        shape, dtype = laid_out(node.result.shape, result), node.result.dtype
        tensor = self.argmax(w, w.read(x, layout), layout.index(axis), shape=shape, dtype=dtype)
        w.bind(node.result, tensor, result)

    def _cumsum(self, w: Writer, node: Node) -> None:
        (x,), attrs = node.operands, node.attrs
        layout = layout_of(w, x)
        tensor = w.read(x, layout)
        place = layout.index(attrs["axis"])
        w.bind(node.result, self.cumsum(w, tensor, place, attrs["reverse"]), layout)

    def _assign(self, w: Writer, node: Node) -> None:
        """Assign a tensor in its layout, or fill the param with a scalar."""
        param, value = node.operands
        layout = w.common_layout([value], param.shape)
        tensor = w.aligned(value, layout)
        if value.shape != param.shape:
            tensor = self.expand(w, tensor, laid_out(param.shape, layout))
        w.write(param, tensor, layout)
