"""Decode block-quantized weights; see compiler/ir/blocks.py."""

import math
from collections.abc import Mapping

from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.movement import concat
from pockengine.backends.tflite.kinds import FLOAT, INT
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, Node
from pockengine.compiler.ir.blocks import BLOCK


def _decode_blocks(w: EntryWriter, node: Node) -> None:
    """Codes times scales, one row per block; a byte has two 4-bit codes."""
    (codes, scales), axis, shape = node.operands, node.attrs["axis"], node.result.shape
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    blocks = shape[axis] // BLOCK
    size = codes.type.size // (before * blocks * behind)
    parts = w.reshape(w.read(codes), (before, blocks, size, behind))
    if node.attrs["bits"] == 4:
        whole, sixteen = w.cast(parts, INT), w.scalar(16, I32)
        halves = [w.broadcast(op, whole, sixteen) for op in ("FLOOR_MOD", "FLOOR_DIV")]
        both = w.cast(concat(w, halves, 2), FLOAT)
        numbers = w.broadcast("SUB", both, w.scalar(8.0))
    else:
        numbers = w.cast(parts, FLOAT)
    scale = w.reshape(w.cast(w.read(scales), FLOAT), (before, blocks, 1, behind))
    w.bind(node.result, w.reshape(w.broadcast("MUL", numbers, scale), shape))


FORMS: Mapping[str, Form] = {"decode_blocks": _decode_blocks}
