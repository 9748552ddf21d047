"""Our random numbers, bit for bit, in the runtime's arithmetic of integers.

It has shifts and exclusive or for 32 bits, but wrapping products only for 64 bits: the bits above
32 are cleared after each.
"""

from collections.abc import Mapping

import numpy as np

from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.wide import lower
from pockengine.backends.tflite.kinds import FLOAT, UNSIGNED, WIDE
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I64, Node
from pockengine.compiler.ops.random import MIXER, STREAM_STEP

UNIT = float(np.float32(2**-24))


def _random_uniform(w: EntryWriter, node: Node) -> None:
    """Hash each element's number and the stream's key; see compiler/ops/random.py."""
    (seed,), shape = node.operands, node.result.shape
    stream = node.attrs["stream"] * STREAM_STEP & 0xFFFFFFFF
    bits = lower(w, w.cast(w.read(seed), WIDE))
    key = _mixed(w, w.broadcast("BITWISE_XOR", bits, w.unsigned(stream)))
    places = w.constant(np.arange(node.result.type.size, dtype=np.int64))
    numbers = w.cast(_mixed(w, w.cast(places, UNSIGNED)), WIDE)
    drawn = _mixed(w, lower(w, w.broadcast("ADD", numbers, w.cast(key, WIDE))))
    upper = w.cast(w.cast(_right(w, drawn, 8), WIDE), FLOAT)
    w.bind(node.result, w.reshape(w.broadcast("MUL", upper, w.scalar(UNIT)), shape))


def _mixed(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """One round of the mixer."""
    for shift, factor in MIXER:
        x = w.broadcast("BITWISE_XOR", x, _right(w, x, shift))
        if factor != 1:
            whole = w.broadcast("MUL", w.cast(x, WIDE), w.scalar(factor, I64))
            x = lower(w, whole)
    return x


def _right(w: EntryWriter, x: LiteTensor, shift: int) -> LiteTensor:
    return w.broadcast("RIGHT_SHIFT", x, w.unsigned(shift))


FORMS: Mapping[str, Form] = {"random_uniform": _random_uniform}
