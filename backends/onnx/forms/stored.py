"""Decode block-quantized weights; see compiler/ir/blocks.py."""

import math
from collections.abc import Mapping

from onnx import TensorProto

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.blocks import BLOCK
from pockengine.compiler.ir.types import DType


def _decode_blocks(w: EntryWriter, node: Node) -> None:
    """Codes times scales, one row per block; a byte has two 4-bit codes."""
    (codes, scales), axis, shape = node.operands, node.attrs["axis"], node.result.shape
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    blocks = shape[axis] // BLOCK
    size = codes.type.size // (before * blocks * behind)
    parts = w.reshape(w.read(codes), (before, blocks, size, behind))
    if node.attrs["bits"] == 4:
        low = w.node("BitwiseAnd", parts, w.scalar(15, DType.U8))
        high = w.node("BitShift", parts, w.scalar(4, DType.U8), direction="RIGHT")
        halves = w.node("Concat", low, high, axis=2)
        numbers = w.node("Sub", w.node("Cast", halves, to=TensorProto.FLOAT), w.scalar(8.0))
    else:
        numbers = w.node("Cast", parts, to=TensorProto.FLOAT)
    scale = w.node("Cast", w.read(scales), to=TensorProto.FLOAT)
    scaled = w.node("Mul", numbers, w.reshape(scale, (before, blocks, 1, behind)))
    w.bind(node.result, w.reshape(scaled, shape))


FORMS: Mapping[str, Form] = {"decode_blocks": _decode_blocks}
