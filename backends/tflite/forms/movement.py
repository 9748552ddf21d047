"""Ops that move elements. They work in the layout that their operand lies in."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pockengine.backends.runtimes.layout import Layout, canonical, laid_out
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node, Value

Span = tuple[int, int, int]
"""Start, stop and step along an axis."""
MOST_MOVED = 5
"""Dimensions that the runtime pads and slices."""


def layout_of(w: EntryWriter, x: Value) -> Layout:
    """Return the layout that a value lies in."""
    return w.common_layout([x], x.shape)


def _reshape(w: EntryWriter, node: Node) -> None:
    w.bind(node.result, w.reshape(w.read(node.operands[0]), node.result.shape))


def _transpose(w: EntryWriter, node: Node) -> None:
    """Move nothing: the result lies in another layout, and is transposed where that matters."""
    (x,), perm = node.operands, node.attrs["perm"]
    layout = layout_of(w, x)
    w.bind(node.result, w.read(x, layout), tuple(perm.index(axis) for axis in layout))


def _broadcast_to(w: EntryWriter, node: Node) -> None:
    (x,), shape = node.operands, node.result.shape
    layout = layout_of(w, x) if len(x.shape) == len(shape) else canonical(len(shape))
    w.bind(node.result, w.expand(w.aligned(x, layout), laid_out(shape, layout)), layout)


def _concat(w: EntryWriter, node: Node) -> None:
    largest = max(node.operands, key=lambda value: value.type.size)
    layout = layout_of(w, largest)
    tensors = [w.read(value, layout) for value in node.operands]
    w.bind(node.result, concat(w, tensors, layout.index(node.attrs["axis"])), layout)


def concat(w: EntryWriter, tensors: Sequence[LiteTensor], axis: int) -> LiteTensor:
    """Put tensors behind each other."""
    if len(tensors) == 1:
        return tensors[0]
    shape = list(tensors[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    return w.op("CONCATENATION", *tensors, shape=tuple(shape), Axis=axis)


def _pad(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    low, high = (laid_out(attrs[side], layout) for side in ("low", "high"))
    value = None if attrs["value"] == 0 else w.scalar(attrs["value"], x.dtype)
    w.bind(node.result, padded(w, w.read(x, layout), low, high, value), layout)


def padded(
    w: EntryWriter,
    x: LiteTensor,
    low: Sequence[int],
    high: Sequence[int],
    value: LiteTensor | None = None,
) -> LiteTensor:
    """Put zeros, or copies of a scalar, around a tensor."""
    if not any((*low, *high)):
        return x
    shape = tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))
    groups = _groups(x.shape, [axis for axis in range(len(shape)) if low[axis] or high[axis]])
    x = _merged(w, x, groups)
    sides = [[side[group[-1]] for group in groups] for side in (low, high)]
    sizes = w.constant(np.stack(sides, axis=1).astype(np.int32))
    op, inputs = ("PAD", (x, sizes)) if value is None else ("PADV2", (x, sizes, value))
    own = tuple(a + n + b for a, n, b in zip(sides[0], x.shape, sides[1], strict=True))
    return w.reshape(w.op(op, *inputs, shape=own), shape)


def _groups(shape: Sequence[int], touched: Sequence[int]) -> list[list[int]]:
    """Axes, neighbours that nothing touches as one where there are too many for the runtime."""
    groups: list[list[int]] = []
    for axis in range(len(shape)):
        alone = len(shape) <= MOST_MOVED or axis in touched or not groups
        if alone or groups[-1][-1] in touched:
            groups.append([axis])
        else:
            groups[-1].append(axis)
    return groups


def _merged(w: EntryWriter, x: LiteTensor, groups: Sequence[Sequence[int]]) -> LiteTensor:
    return w.reshape(x, tuple(math.prod(x.shape[axis] for axis in group) for group in groups))


def _slice(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    spans = [*zip(attrs["start"], attrs["stop"], attrs["step"], strict=True)]
    tensor = sliced(w, w.read(x, layout), dict(enumerate(laid_out_spans(spans, layout))))
    w.bind(node.result, tensor, layout)


def laid_out_spans(spans: Sequence[Span], layout: Layout) -> list[Span]:
    """Spans in the order of a layout's dimensions."""
    return [spans[axis] for axis in layout]


def sliced(w: EntryWriter, x: LiteTensor, spans: Mapping[int, Span]) -> LiteTensor:
    """Slice some axes of a tensor."""
    whole = [spans.get(axis, (0, size, 1)) for axis, size in enumerate(x.shape)]
    if all(span == (0, size, 1) for span, size in zip(whole, x.shape, strict=True)):
        return x
    shape = tuple(len(range(*span)) for span in whole)
    groups = _groups(x.shape, [axis for axis in spans if whole[axis] != (0, x.shape[axis], 1)])
    x = _merged(w, x, groups)
    rows = [
        whole[group[0]] if len(group) == 1 else (0, size, 1)
        for group, size in zip(groups, x.shape, strict=True)
    ]
    bounds = (w.numbers(numbers) for numbers in zip(*rows, strict=True))
    own = tuple(len(range(*row)) for row in rows)
    return w.reshape(w.op("STRIDED_SLICE", x, *bounds, shape=own), shape)


def _reverse(w: EntryWriter, node: Node) -> None:
    (x,) = node.operands
    layout = layout_of(w, x)
    tensor = w.read(x, layout)
    for axis in node.attrs["axes"]:
        tensor = reversed_axis(w, tensor, layout.index(axis))
    w.bind(node.result, tensor, layout)


def reversed_axis(w: EntryWriter, x: LiteTensor, axis: int) -> LiteTensor:
    """Turn one axis round: all that every release of the runtime turns at once."""
    return w.op("REVERSE_V2", x, w.numbers([axis]), shape=x.shape)


def _pick(w: EntryWriter, node: Node) -> None:
    (x,), index = node.operands, node.attrs["index"]
    layout = layout_of(w, x)
    axis = layout.index(node.attrs["axis"])
    w.bind(node.result, gathered(w, w.read(x, layout), w.numbers(index), axis), layout)


def gathered(w: EntryWriter, x: LiteTensor, index: LiteTensor, axis: int) -> LiteTensor:
    """Take slices of an axis at sound indices."""
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return w.op("GATHER", x, index, shape=shape, Axis=axis)


FORMS: Mapping[str, Form] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "pad": _pad,
    "slice": _slice,
    "reverse": _reverse,
    "pick": _pick,
}
