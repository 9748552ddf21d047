"""Quantized 8-bit integers as QDQ pairs.

Products of real numbers lie between DequantizeLinear and QuantizeLinear, from which runtimes
recognize products to compute with integers. Scales computed at run time, and 32-bit integers, use
plain arithmetic.
"""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import WEIGHT_FIRST, Layout
from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.compiler.ir import I32, Node, Value
from pockengine.compiler.ir.types import DType

I8 = DType.I8


def _dequantize(w: EntryWriter, node: Node) -> None:
    """Dequantize; a window is transposed to the convolution's layout, so nothing lies in
    between.
    """
    q, scale = node.operands
    layout = w.common_layout([q], q.shape)
    if w.graph.param_of(q) is not None and q.type.rank == len(WEIGHT_FIRST):
        layout = WEIGHT_FIRST
    linear = _linear(w, scale, q, layout)
    zero = node.attrs["zero"]
    if linear is None or q.dtype is not I8:
        whole = w.node("Cast", w.read(q, layout), to=TensorProto.INT32)
        moved = w.node("Sub", whole, w.scalar(zero, I32)) if zero else whole
        number = w.node("Cast", moved, to=TensorProto.FLOAT)
        real = w.node("Mul", number, w.aligned(scale, layout))
    else:
        scales, axis = linear
        zeros = w.constant(np.full(scales.shape, zero, np.int8))
        tensors = w.read(q, layout), w.constant(scales), zeros
        real = w.node("DequantizeLinear", *tensors, axis=axis)
    w.bind(node.result, real, layout)


def _quantize(w: EntryWriter, node: Node) -> None:
    """Quantize; values beyond `low` and `high` saturate, and NaN becomes 0 if it is computed."""
    x, scale = node.operands
    layout = w.common_layout([x], x.shape)
    zero, low, high = (node.attrs[name] for name in ("zero", "low", "high"))
    dtype = node.result.dtype
    linear = _linear(w, scale, x, layout)
    if linear is None or dtype is not I8:
        units = w.node("Round", w.node("Div", w.read(x, layout), w.aligned(scale, layout)))
        real = w.node("Equal", units, units)
        known = w.node("Where", real, units, w.scalar(0.0))
        limits = (w.scalar(float(low - zero)), w.scalar(float(high - zero)))
        clamped = w.node("Clip", known, *limits)
        q = w.node("Cast", w.node("Add", clamped, w.scalar(float(zero))), to=NUMBERS[dtype])
    else:
        scales, axis = linear
        zeros = w.constant(np.full(scales.shape, zero, np.int8))
        tensors = w.read(x, layout), w.constant(scales), zeros
        q = w.node("QuantizeLinear", *tensors, axis=axis)
        if (low, high) != (-128, 127):
            q = w.node("Clip", q, w.scalar(low, I8), w.scalar(high, I8))
    w.bind(node.result, q, layout)


def _unclamped(w: EntryWriter, node: Node) -> None:
    """Whether integers are between the limits; compared as i32, which all runtimes support."""
    operands = Operands(w, node)
    whole = w.node("Cast", *operands.tensors, to=TensorProto.INT32)
    above = w.node("Greater", whole, w.scalar(node.attrs["low"], I32))
    below = w.node("Less", whole, w.scalar(node.attrs["high"], I32))
    operands.give(w.node("And", above, below))


def _linear(
    w: EntryWriter, scale: Value, value: Value, layout: Layout
) -> tuple[np.ndarray, int] | None:
    """Return constant scales in ONNX's form, one or a vector, and its axis in the layout."""
    data = w.graph.constants.get(scale)
    if data is None:
        return None
    axes = [axis for axis, size in enumerate(data.shape, value.type.rank - data.ndim) if size > 1]
    if len(axes) > 1:
        return None
    if not axes:
        return data.reshape(()), 0
    return data.reshape(-1), layout.index(axes[0])


FORMS: Mapping[str, Form] = {
    "dequantize": _dequantize,
    "quantize": _quantize,
    "unclamped": _unclamped,
}
