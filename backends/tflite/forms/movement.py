"""Ops that move, reduce or assign elements, in the layout of their operand."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pockengine.backends.runtimes.forms import LaidOutForms, Span
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.kinds import KINDS
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir.types import DType, Shape

MOST_MOVED = 5
"""Maximum dimensions for the runtime's pads and slices."""


def concat(w: EntryWriter, tensors: Sequence[LiteTensor], axis: int) -> LiteTensor:
    """Concatenate tensors."""
    if len(tensors) == 1:
        return tensors[0]
    shape = list(tensors[0].shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    return w.op("CONCATENATION", *tensors, shape=tuple(shape), Axis=axis)


def padded(
    w: EntryWriter,
    x: LiteTensor,
    low: Sequence[int],
    high: Sequence[int],
    value: LiteTensor | None = None,
) -> LiteTensor:
    """Pad a tensor with zeros, or with copies of a scalar."""
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
    """Group axes, merging untouched adjacent ones if there are too many for the runtime."""
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


def reversed_axis(w: EntryWriter, x: LiteTensor, axis: int) -> LiteTensor:
    """Reverse one axis: some releases of the runtime support only one at a time."""
    return w.op("REVERSE_V2", x, w.numbers([axis]), shape=x.shape)


def gathered(w: EntryWriter, x: LiteTensor, index: LiteTensor, axis: int) -> LiteTensor:
    """Take slices of an axis at valid indices."""
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return w.op("GATHER", x, index, shape=shape, Axis=axis)


class _Forms(LaidOutForms[EntryWriter, LiteTensor]):
    reductions: Mapping[str, str] = {
        "reduce_sum": "SUM",
        "reduce_mean": "MEAN",
        "reduce_max": "REDUCE_MAX",
        "reduce_min": "REDUCE_MIN",
        "reduce_prod": "REDUCE_PROD",
    }

    def expand(self, w: EntryWriter, x: LiteTensor, shape: Shape) -> LiteTensor:
        return w.expand(x, shape)

    def concat(self, w: EntryWriter, tensors: Sequence[LiteTensor], axis: int) -> LiteTensor:
        return concat(w, tensors, axis)

    def pad(
        self, w: EntryWriter, x: LiteTensor, low: Shape, high: Shape, value: float, dtype: DType
    ) -> LiteTensor:
        return padded(w, x, low, high=high, value=None if value == 0 else w.scalar(value, dtype))

    def slice(self, w: EntryWriter, x: LiteTensor, spans: Mapping[int, Span]) -> LiteTensor:
        return sliced(w, x, spans)

    def reverse(self, w: EntryWriter, x: LiteTensor, axes: Sequence[int]) -> LiteTensor:
        for axis in axes:
            x = reversed_axis(w, x, axis)
        return x

    def pick(self, w: EntryWriter, x: LiteTensor, index: Sequence[int], axis: int) -> LiteTensor:
        return gathered(w, x, w.numbers(index), axis)

    def reduce(
        self, w: EntryWriter, op: str, x: LiteTensor, axes: Sequence[int], keep: bool, shape: Shape
    ) -> LiteTensor:
        return w.op(op, x, w.numbers(axes), shape=shape, KeepDims=keep) if axes else x

    def argmax(
        self, w: EntryWriter, x: LiteTensor, axis: int, shape: Shape, dtype: DType
    ) -> LiteTensor:
        kind = KINDS[dtype]
        return w.op("ARG_MAX", x, w.numbers([axis]), shape=shape, kind=kind, OutputType=kind)

    def cumsum(self, w: EntryWriter, x: LiteTensor, axis: int, reverse: bool) -> LiteTensor:
        return w.op("CUMSUM", x, w.numbers([axis]), shape=x.shape, Reverse=reverse)


FORMS: Mapping[str, Form] = _Forms().forms()
