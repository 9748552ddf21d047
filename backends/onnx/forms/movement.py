"""Ops that move, reduce or assign elements, in the layout of their operand."""

from collections.abc import Mapping, Sequence

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.forms import LaidOutForms
from pockengine.compiler.ir.types import DType, Shape

BEFORE_FIRST = -(2**31)
"""End of a slice with a negative step that includes the first element."""


def sliced(w: EntryWriter, name: str, spans: Mapping[int, Sequence[int]]) -> str:
    """Slice some axes of a tensor, each by (start, stop, step)."""
    if not spans:
        return name
    starts, stops, steps = zip(*spans.values(), strict=True)
    bounds = (w.numbers(numbers) for numbers in (starts, stops, tuple(spans), steps))
    return w.node("Slice", name, *bounds)


class _Forms(LaidOutForms[EntryWriter, str]):
    reductions: Mapping[str, str] = {
        "reduce_sum": "ReduceSum",
        "reduce_mean": "ReduceMean",
        "reduce_max": "ReduceMax",
        "reduce_min": "ReduceMin",
        "reduce_prod": "ReduceProd",
    }

    def expand(self, w: EntryWriter, x: str, shape: Shape) -> str:
        return w.node("Expand", x, w.numbers(shape))

    def concat(self, w: EntryWriter, tensors: Sequence[str], axis: int) -> str:
        return w.node("Concat", *tensors, axis=axis)

    def pad(
        self, w: EntryWriter, x: str, low: Shape, high: Shape, value: float, dtype: DType
    ) -> str:
        return w.node("Pad", x, w.numbers([*low, *high]), w.scalar(value, dtype))

    def slice(self, w: EntryWriter, x: str, spans: Mapping[int, Sequence[int]]) -> str:
        return sliced(w, x, spans)

    def reverse(self, w: EntryWriter, x: str, axes: Sequence[int]) -> str:
        return sliced(w, x, dict.fromkeys(axes, (-1, BEFORE_FIRST, -1)))

    def pick(self, w: EntryWriter, x: str, index: Sequence[int], axis: int) -> str:
        return w.node("Gather", x, w.numbers(index), axis=axis)

    def reduce(
        self, w: EntryWriter, op: str, x: str, axes: Sequence[int], keep: bool, shape: Shape
    ) -> str:
        """ONNX 18 takes the axes as an input, and an empty list means all axes."""
        return w.node(op, x, w.numbers(axes), keepdims=int(keep), noop_with_empty_axes=1)

    def argmax(self, w: EntryWriter, x: str, axis: int, shape: Shape, dtype: DType) -> str:
        return w.node("ArgMax", x, axis=axis, keepdims=0)

    def cumsum(self, w: EntryWriter, x: str, axis: int, reverse: bool) -> str:
        return w.node("CumSum", x, w.numbers([axis]), reverse=int(reverse))


FORMS: Mapping[str, Form] = _Forms().forms()
