"""Gather and scatter-add at run-time indices.

A read outside an axis is clamped, an addition there is dropped. Additions use SCATTER_ND, which
accumulates colliding elements in order.
"""

import math
from collections.abc import Mapping

import numpy as np

from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.movement import gathered
from pockengine.backends.tflite.kinds import INT, TRUTH
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.types import Shape


def _inside(w: EntryWriter, index: Value, size: int) -> LiteTensor:
    """Clamp each index to its axis; the result has 32 bits."""
    known = w.graph.constants.get(index)
    if known is not None:
        return w.constant(np.clip(known, 0, size - 1).astype(np.int32))
    low = w.broadcast("MAXIMUM", w.read(index), w.scalar(0, index.dtype))
    return w.cast(w.broadcast("MINIMUM", low, w.scalar(size - 1, index.dtype)), INT)


def _masked(w: EntryWriter, index: Value, size: int, dy: LiteTensor, shape: Shape) -> LiteTensor:
    """Zero the additions at indices, in this shape, that are out of range."""
    known = w.graph.constants.get(index)
    if known is not None and known.min() >= 0 and known.max() < size:
        return dy
    tensor = w.read(index)
    low = w.broadcast("GREATER_EQUAL", tensor, w.scalar(0, index.dtype), kind=TRUTH)
    high = w.broadcast("LESS", tensor, w.scalar(size, index.dtype), kind=TRUTH)
    inside = w.reshape(w.broadcast("LOGICAL_AND", low, high), shape)
    return w.broadcast("SELECT_V2", inside, dy, w.scalar(0.0))


def _take(w: EntryWriter, node: Node) -> None:
    (x, index), axis = node.operands, node.attrs["axis"]
    places = _inside(w, index, x.shape[axis])
    w.bind(node.result, gathered(w, w.read(x), places, axis))


def _take_dx(w: EntryWriter, node: Node) -> None:
    """Add rows of dy (before, count, after) to rows of the result (before, size, after)."""
    (dy, index), shape, axis = node.operands, node.result.shape, node.attrs["axis"]
    before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = index.type.size
    parts = _masked(
        w, index, size, dy=w.reshape(w.read(dy), (before, count, after)), shape=(count, 1)
    )
    row = w.reshape(_inside(w, index, size), (1, count))
    firsts = w.constant(size * np.arange(before, dtype=np.int32).reshape(before, 1))
    places = w.reshape(w.broadcast("ADD", row, firsts), (before * count, 1))
    flat = w.reshape(parts, (before * count, after))
    w.bind(node.result, w.reshape(_added(w, places, flat, (before * size, after)), shape))


def _places(w: EntryWriter, index: Value, shape: Shape, axis: int) -> LiteTensor:
    """Offsets, in a flat tensor of this shape, of the elements at the indices along an axis."""
    own = index.shape
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    others = [
        np.arange(n).reshape([n if i == place else 1 for i in range(len(own))]) * strides[place]
        for place, n in enumerate(own)
        if place != axis
    ]
    base = np.broadcast_to(sum(others, np.zeros(own, np.int64)), own).astype(np.int32)
    inside = _inside(w, index, shape[axis])
    steps = w.broadcast("MUL", inside, w.constant(np.asarray(strides[axis], np.int32)))
    return w.broadcast("ADD", steps, w.constant(base))


def _take_along(w: EntryWriter, node: Node) -> None:
    (x, index), axis = node.operands, node.attrs["axis"]
    places = w.reshape(_places(w, index, x.shape, axis), (index.type.size,))
    flat = w.reshape(w.read(x), (x.type.size,))
    w.bind(node.result, w.reshape(gathered(w, flat, places, 0), node.result.shape))


def _take_along_dx(w: EntryWriter, node: Node) -> None:
    (dy, index), axis, shape = node.operands, node.attrs["axis"], node.result.shape
    parts = _masked(w, index, shape[axis], dy=w.read(dy), shape=index.shape)
    places = w.reshape(_places(w, index, shape, axis), (index.type.size, 1))
    flat = _added(w, places, w.reshape(parts, (index.type.size,)), (math.prod(shape),))
    w.bind(node.result, w.reshape(flat, shape))


def _added(w: EntryWriter, places: LiteTensor, rows: LiteTensor, shape: Shape) -> LiteTensor:
    """Add rows to rows of zeros at valid positions."""
    return w.op("SCATTER_ND", places, rows, w.numbers(shape), shape=shape, kind=rows.kind)


FORMS: Mapping[str, Form] = {
    "take": _take,
    "take_along": _take_along,
    "take_dx": _take_dx,
    "take_along_dx": _take_along_dx,
}
