"""Forms for ops that the HTP would otherwise compute differently; others use the ONNX forms.

An integer convolution lies between pairs and has a constant weight and bias. Everywhere else the
HTP computes 16-bit floats and drops pairs, so an extra node clamps. It cannot dequantize a weight
by channels, so integers become floats first, and are then multiplied by scales.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pockengine.backends.onnx.forms import FORMS as PLAIN
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.taps import windows_of
from pockengine.backends.onnx.forms.windows import geometry
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import IMAGES_FIRST, WEIGHT_FIRST
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.ir.types import DType
from pockengine.compiler.ops import lookup

I8 = DType.I8


@dataclass(frozen=True)
class _Unit:
    """An integer convolution: its weight's pair, and the node that adds its bias, if any."""

    weight: Node
    bias: Node | None


def _conv2d(w: EntryWriter, node: Node) -> None:
    """Convolve between pairs, with a frozen bias as the third operand, if both are constants."""
    unit = _unit(w, node)
    if unit is None:
        PLAIN["conv2d"](w, node)
        return
    tensors = [w.read(node.operands[0], IMAGES_FIRST), _by_channel(w, unit.weight)]
    if unit.bias is not None:
        tensors.append(w.read(unit.bias.operands[1]))
        w.unchanged[unit.bias] = node.result
    windows = windows_of(node.attrs, node.operands[1].shape)
    name = w.node("Conv", *tensors, **geometry(windows, node.attrs["groups"]))
    w.bind(node.result, name, IMAGES_FIRST)


def _unit(w: EntryWriter, node: Node) -> _Unit | None:
    """Return the integer convolution that starts at a node; None if the HTP convolves floats."""
    if node.op != "conv2d" or not all(_is_pair(value) for value in node.operands):
        return None
    weight, last = node.operands[1].node, node.result
    if weight is None or not _is_frozen(w, weight.operands[0]):
        return None
    bias = w.only_reader(node.result, "add")
    if bias is not None:
        shift = bias.operands[1]
        if shift.type.rank != 1 or not _is_frozen(w, shift):
            return None
        last = bias.result
    return _Unit(weight, bias) if w.only_reader(last, "quantize") else None


def _is_pair(value: Value) -> bool:
    """Whether a value is a dequantized i8."""
    return value.node is not None and value.node.op == "dequantize" and _of_integers(value.node)


def _of_integers(node: Node) -> bool:
    return node.operands[0].dtype is I8


def _is_frozen(w: EntryWriter, value: Value) -> bool:
    param = w.graph.param_of(value)
    return param is not None and param.space is Space.CONSTANT


def _by_channel(w: EntryWriter, pair: Node) -> str:
    """Return a frozen weight's pair, in the form of integer convolutions."""
    q, scale = pair.operands
    scales = w.graph.constants[scale].reshape(-1)
    zeros = np.full(scales.shape, pair.attrs["zero"], np.int8)
    tensors = w.read(q, WEIGHT_FIRST), w.constant(scales), w.constant(zeros)
    return w.node("DequantizeLinear", *tensors, axis=0)


def _dequantize(w: EntryWriter, node: Node) -> None:
    """Convert integers to floats, then multiply by scales, if scales are per channel."""
    q, scale = node.operands
    scales = w.graph.constants.get(scale)
    if scales is None or scales.size == 1 or not _of_integers(node):
        PLAIN["dequantize"](w, node)
        return
    if all(_unit(w, reader) for reader in w.readers(node.result)):
        return  # each makes its own
    window = w.graph.param_of(q) is not None and q.type.rank == len(WEIGHT_FIRST)
    layout = WEIGHT_FIRST if window else w.common_layout([q], q.shape)
    one, zero = w.scalar(1.0), w.scalar(node.attrs["zero"], I8)
    whole = w.node("DequantizeLinear", w.read(q, layout), one, zero)
    w.bind(node.result, w.node("Mul", whole, w.aligned(scale, layout)), layout)


def _quantize(w: EntryWriter, node: Node) -> None:
    """Clamp floats, including ReLUs, to the range of the integers before quantizing."""
    x, step = node.operands[0], _step(w, node)
    if step is None or _ends_unit(w, x):
        PLAIN["quantize"](w, node)
        return
    layout, zero = w.common_layout([x], x.shape), node.attrs["zero"]
    limits = (w.scalar(float(step * (node.attrs[name] - zero))) for name in ("low", "high"))
    clamped = w.node("Clip", w.read(x, layout), *limits)
    q = w.node("QuantizeLinear", clamped, w.constant(step), w.scalar(zero, I8))
    w.bind(node.result, q, layout)


def _step(w: EntryWriter, node: Node) -> np.ndarray | None:
    """Return the scale of a `quantize` to i8, if it is a single constant."""
    scales = w.graph.constants.get(node.operands[1])
    if scales is None or scales.size > 1 or node.result.dtype is not I8:
        return None
    return scales.reshape(()).astype(np.float32)


def _ends_unit(w: EntryWriter, x: Value) -> bool:
    """Whether the quantized value comes from integers: then the HTP clamps on rounding."""
    node = x.node
    if node is None or w.only_reader(x, "quantize") is None:
        return False
    first = node.operands[0].node
    if node.op == "add" and first is not None and _unit(w, first) is not None:
        return True
    combines = node.op == "add" or lookup(node.op).means
    exact = combines and all(_is_pair(value) for value in node.operands)
    return exact or _unit(w, node) is not None


def _unclamped(w: EntryWriter, node: Node) -> None:
    """Compare the dequantized numbers with the middle between two integers: a Cast of them adds
    128.
    """
    q = node.operands[0]
    step = _step(w, q.node) if q.node is not None and q.node.op == "quantize" else None
    if q.node is None or step is None:
        PLAIN["unclamped"](w, node)
        return
    layout, zero = w.common_layout([q], q.shape), q.node.attrs["zero"]
    real = w.node("DequantizeLinear", w.read(q, layout), w.constant(step), w.scalar(zero, I8))
    low, high = node.attrs["low"] + 0.5 - zero, node.attrs["high"] - 0.5 - zero
    above = w.node("Greater", real, w.scalar(float(step * low)))
    below = w.node("Less", real, w.scalar(float(step * high)))
    w.bind(node.result, w.node("And", above, below), layout)


FORMS: Mapping[str, Form] = {
    **PLAIN,
    "conv2d": _conv2d,
    "dequantize": _dequantize,
    "quantize": _quantize,
    "unclamped": _unclamped,
}
