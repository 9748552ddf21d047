"""Scale and shift of channels in one pass: the inference mode of batch norm.

It normalizes with a mean of 0 and a variance of 1. Its training mode is unusable: ONNX Runtime
writes the moments into its inputs for the running ones, even if they are constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.forms import layout_of
from pockengine.backends.runtimes.layout import canonical
from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.types import F32


@dataclass(frozen=True)
class _Shift:
    """The shift of a scaled image: `node` adds a vector, and is replaced by `before`.

    `before` is the scaled image, or its sum with another image.
    """

    vector: Value
    node: Node
    before: Value


def _mul(w: EntryWriter, node: Node) -> None:
    """Multiply; an image by a vector, merged with a vector that is added later."""
    image, scale = sorted(node.operands, key=lambda value: -len(value.shape))
    shift = _shift_of(w, node, image) if _is_channels(scale, image) else None
    if shift is None:
        operands = Operands(w, node)
        operands.give(w.node("Mul", *operands.tensors))
        return
    zeros, ones = (w.constant(fill(scale.shape, np.float32)) for fill in (np.zeros, np.ones))
    layout = layout_of(w, image)
    vectors = (w.read(scale), w.read(shift.vector), zeros, ones)
    name = w.node("BatchNormalization", w.read(image, layout), *vectors, epsilon=0.0)
    w.bind(node.result, name, layout)
    w.unchanged[shift.node] = shift.before


def _shift_of(w: EntryWriter, node: Node, image: Value) -> _Shift | None:
    """Return the shift of a scaled image, direct or after a sum; None if absent, or too late."""
    rank, before = len(image.shape), node.result
    if rank < 3 or layout_of(w, image) != (0, rank - 1, *canonical(rank)[1:-1]):
        return None
    for _ in range(2):
        last = w.only_reader(before, "add")
        if last is None or last in w.unchanged:
            return None
        added = [value for value in last.operands if value is not before]
        if not added:
            return None
        if _is_channels(added[0], image):
            return _Shift(added[0], last, before) if w.is_made(added[0]) else None
        before = last.result
    return None


def _is_channels(value: Value, image: Value) -> bool:
    return value.dtype is F32 and value.shape == image.shape[-1:]


FORMS: Mapping[str, Form] = {"mul": _mul}
