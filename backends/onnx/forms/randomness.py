"""Our random numbers, bit for bit, in ONNX's arithmetic of 32-bit integers."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import I64, Node
from pockengine.compiler.ops.random import MIXER, STREAM_STEP

UNIT = float(np.float32(2**-24))


def _random_uniform(w: EntryWriter, node: Node) -> None:
    """Hash each element's number and the stream's key; see compiler/ops/random.py."""
    (seed,), shape = node.operands, node.result.shape
    stream = node.attrs["stream"] * STREAM_STEP & 0xFFFFFFFF
    bits = w.node("Cast", w.read(seed), to=TensorProto.UINT32)
    key = _mixed(w, w.node("BitwiseXor", bits, _unsigned(w, stream)))
    bounds = (w.scalar(number, I64) for number in (0, node.result.type.size, 1))
    places = w.node("Range", *bounds)
    numbers = _mixed(w, w.node("Cast", places, to=TensorProto.UINT32))
    drawn = _mixed(w, w.node("Add", numbers, key))
    upper = w.node("BitShift", drawn, _unsigned(w, 8), direction="RIGHT")
    flat = w.node("Mul", w.node("Cast", upper, to=TensorProto.FLOAT), w.scalar(UNIT))
    w.bind(node.result, w.reshape(flat, shape))


def _mixed(w: EntryWriter, x: str) -> str:
    """One round of the mixer."""
    for shift, factor in MIXER:
        moved = w.node("BitShift", x, _unsigned(w, shift), direction="RIGHT")
        x = w.node("BitwiseXor", x, moved)
        if factor != 1:
            x = w.node("Mul", x, _unsigned(w, factor))
    return x


def _unsigned(w: EntryWriter, number: int) -> str:
    """A number of 32 unsigned bits, which is not one of our types."""
    return w.node("Cast", w.scalar(number, I64), to=TensorProto.UINT32)


FORMS: Mapping[str, Form] = {"random_uniform": _random_uniform}
