"""Gather and scatter-add at run-time indices.

A read outside an axis is clamped, an addition there is dropped. Additions use ScatterElements: ONNX
Runtime's ScatterND adds in several threads without synchronization, so that some runs lose one of
two additions to the same element.
"""

import math
from collections.abc import Mapping

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import canonical
from pockengine.compiler.ir import Node, Value


def _inside(w: EntryWriter, index: Value, size: int) -> str:
    """Clamp each index to its axis, unless all are constant and in range."""
    name = w.read(index)
    if _is_sound(w, index, size):
        return name
    return w.node("Clip", name, w.scalar(0, index.dtype), w.scalar(size - 1, index.dtype))


def _is_sound(w: EntryWriter, index: Value, size: int) -> bool:
    known = w.graph.constants.get(index)
    return known is not None and known.size > 0 and known.min() >= 0 and known.max() < size


def _masked(w: EntryWriter, index: Value, size: int, dy: str, shape: tuple[int, ...]) -> str:
    """Zero the additions at indices, in this shape, that are out of range."""
    if _is_sound(w, index, size):
        return dy
    name = w.read(index)
    low = w.node("GreaterOrEqual", name, w.scalar(0, index.dtype))
    high = w.node("Less", name, w.scalar(size, index.dtype))
    return w.node("Where", w.reshape(w.node("And", low, high), shape), dy, w.scalar(0.0))


def _take(w: EntryWriter, node: Node) -> None:
    (x, index), axis = node.operands, node.attrs["axis"]
    places = _inside(w, index, x.shape[axis])
    w.bind(node.result, w.node("Gather", w.read(x), places, axis=axis))


def _take_along(w: EntryWriter, node: Node) -> None:
    (x, index), axis = node.operands, node.attrs["axis"]
    places = _inside(w, index, x.shape[axis])
    w.bind(node.result, w.node("GatherElements", w.read(x), places, axis=axis))


def _take_dx(w: EntryWriter, node: Node) -> None:
    (dy, index), shape = node.operands, node.result.shape
    whole = _added(
        w, _zeros(w, shape), w.read(dy), index=index, shape=shape, axis=node.attrs["axis"]
    )
    w.bind(node.result, whole)


def _take_along_dx(w: EntryWriter, node: Node) -> None:
    (dy, index), axis, shape = node.operands, node.attrs["axis"], node.result.shape
    size = shape[axis]
    parts = _masked(w, index, size, dy=w.read(dy), shape=index.shape)
    places = _inside(w, index, size)
    name = w.node("ScatterElements", _zeros(w, shape), places, parts, axis=axis, reduction="add")
    w.bind(node.result, name)


def _take_update(w: EntryWriter, node: Node) -> None:
    """param -= lr dy, at the rows that were read."""
    param, dy, index, lr = node.operands
    step = w.node("Neg", w.node("Mul", w.read(lr), w.read(dy)))
    whole = _added(w, w.read(param), step, index=index, shape=param.shape, axis=node.attrs["axis"])
    w.write(param, whole, canonical(len(param.shape)))


def _zeros(w: EntryWriter, shape: tuple[int, ...]) -> str:
    return w.node("Expand", w.scalar(0.0), w.numbers(shape))


def _added(w: EntryWriter, x: str, dy: str, index: Value, shape: tuple[int, ...], axis: int) -> str:
    """Add dy to the slices of x, of this shape, that the index selects along an axis."""
    before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = index.type.size
    parts = _masked(w, index, size, dy=w.reshape(dy, (before, count, after)), shape=(count, 1))
    column = w.reshape(_inside(w, index, size), (count, 1))
    places = w.node("Expand", column, w.numbers((before, count, after)))
    rows = w.reshape(x, (before, size, after))
    added = w.node("ScatterElements", rows, places, parts, axis=1, reduction="add")
    return w.reshape(added, shape)


FORMS: Mapping[str, Form] = {
    "take": _take,
    "take_along": _take_along,
    "take_dx": _take_dx,
    "take_along_dx": _take_along_dx,
    "take_update": _take_update,
}
