"""Ops that move elements. They work in the layout that their operand lies in."""

from collections.abc import Mapping, Sequence

import numpy as np

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import Layout, canonical, laid_out
from pockengine.compiler.ir import Node, Value

BEFORE_FIRST = -(2**31)
"""Where a slice with a negative step ends that takes the first element too."""


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
    sizes = w.numbers(laid_out(shape, layout))
    w.bind(node.result, w.node("Expand", w.aligned(x, layout), sizes), layout)


def _concat(w: EntryWriter, node: Node) -> None:
    largest = max(node.operands, key=lambda value: value.type.size)
    layout = layout_of(w, largest)
    names = [w.read(value, layout) for value in node.operands]
    axis = layout.index(node.attrs["axis"])
    w.bind(node.result, w.node("Concat", *names, axis=axis), layout)


def _pad(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    sizes = w.numbers([*laid_out(attrs["low"], layout), *laid_out(attrs["high"], layout)])
    value = w.scalar(attrs["value"], x.dtype)
    w.bind(node.result, w.node("Pad", w.read(x, layout), sizes, value), layout)


def _slice(w: EntryWriter, node: Node) -> None:
    (x,), attrs = node.operands, node.attrs
    layout = layout_of(w, x)
    spans = zip(attrs["start"], attrs["stop"], attrs["step"], x.shape, strict=True)
    cut = {axis: span for axis, (*span, size) in enumerate(spans) if span != [0, size, 1]}
    name = w.read(x, layout)
    w.bind(node.result, sliced(w, name, {layout.index(a): cut[a] for a in cut}), layout)


def sliced(w: EntryWriter, name: str, spans: Mapping[int, Sequence[int]]) -> str:
    """Slice some axes of a tensor, each by (start, stop, step)."""
    if not spans:
        return name
    starts, stops, steps = zip(*spans.values(), strict=True)
    bounds = (w.numbers(numbers) for numbers in (starts, stops, tuple(spans), steps))
    return w.node("Slice", name, *bounds)


def _reverse(w: EntryWriter, node: Node) -> None:
    (x,) = node.operands
    layout = layout_of(w, x)
    spans = {layout.index(axis): (-1, BEFORE_FIRST, -1) for axis in node.attrs["axes"]}
    w.bind(node.result, sliced(w, w.read(x, layout), spans), layout)


def _pick(w: EntryWriter, node: Node) -> None:
    (x,), index = node.operands, np.asarray(node.attrs["index"], np.int64)
    layout = layout_of(w, x)
    axis = layout.index(node.attrs["axis"])
    w.bind(node.result, w.node("Gather", w.read(x, layout), w.constant(index), axis=axis), layout)


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
