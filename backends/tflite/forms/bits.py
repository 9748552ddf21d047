"""Bitwise ops; the runtime has only exclusive or and right shifts, of 32 bits.

64-bit integers are viewed as pairs of 32; `wide.py` has their shifts. AND is computed from a + b =
(a ^ b) + 2 (a & b), in 64 bits.
"""

from collections.abc import Callable, Mapping

from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.wide import lower, moved_left, moved_right, power, words
from pockengine.backends.tflite.kinds import FLOAT, INT, TRUTH, WIDE
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, I64, Node
from pockengine.errors import CompileError

Word = Callable[[EntryWriter, LiteTensor, LiteTensor], LiteTensor]
"""An op on 32-bit integers."""


def _xor(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    return w.broadcast("BITWISE_XOR", a, b)


def _and(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """Halve a + b - (a ^ b), which has 33 bits: those below the sign, and the sign."""
    total = w.broadcast("ADD", w.cast(a, WIDE), w.cast(b, WIDE))
    twice = w.broadcast("SUB", total, w.cast(_xor(w, a, b), WIDE))
    half = w.cast(w.broadcast("RIGHT_SHIFT", lower(w, twice), w.unsigned(1)), INT)
    signed = w.broadcast("ADD", half, w.scalar(-(2**31), I32))
    negative = w.broadcast("LESS", twice, w.scalar(0, I64), kind=TRUTH)
    return w.broadcast("SELECT_V2", negative, signed, half)


def _or(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """OR: the bits of exactly one operand, plus those of both."""
    return w.broadcast("ADD", _xor(w, a, b), _and(w, a, b))


def _bitwise(word: Word) -> Form:
    """Apply to both operands; 64-bit ones get a last dimension of two words."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        a, b = operands.tensors
        if node.result.dtype is I32:
            operands.give(word(w, a, b))
        elif node.result.dtype is I64:
            operands.give(_of_words(w, word, a, b))
        else:
            raise _refused(node)

    return form


def _of_words(w: EntryWriter, word: Word, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    found = word(w, words(w, a), words(w, b))
    return w.op("BITCAST", found, shape=found.shape[:-1], kind=WIDE)


def lowest_bit(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """Return the lowest set bit of 64, isolated."""
    return _of_words(w, _and, x, w.broadcast("SUB", w.scalar(0, I64), x))


def _shift_left(w: EntryWriter, node: Node) -> None:
    """Multiply by a power of two, and keep the lower bits."""
    operands = Operands(w, node)
    a, by, inside = _shifted(w, node, operands, lambda width: 0)
    if node.result.dtype is I64:
        moved = moved_left(w, a, by)
    else:
        low = lower(w, w.broadcast("MUL", w.cast(a, WIDE), power(w, by)))
        moved = w.op("BITCAST", low, shape=low.shape, kind=INT)
    operands.give(w.broadcast("SELECT_V2", inside, moved, w.scalar(0, node.result.dtype)))


def _shift_right(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    a, by, _ = _shifted(w, node, operands, lambda width: width - 1)
    wide = node.result.dtype is I64
    operands.give(moved_right(w, a, by) if wide else w.broadcast("RIGHT_SHIFT", a, by))


def _shifted(
    w: EntryWriter, node: Node, operands: Operands[LiteTensor], outside: Callable[[int], int]
) -> tuple[LiteTensor, ...]:
    """Return a, the shift as i32, and whether it is within the width.

    Out-of-range shifts are replaced by `outside`.
    """
    dtype = node.result.dtype
    if dtype not in (I32, I64):
        raise _refused(node)
    (a, b), width = operands.tensors, 8 * dtype.numpy.itemsize
    least = w.broadcast("GREATER_EQUAL", b, w.scalar(0, dtype), kind=TRUTH)
    most = w.broadcast("LESS", b, w.scalar(width, dtype), kind=TRUTH)
    inside = w.broadcast("LOGICAL_AND", least, most)
    by = w.broadcast("SELECT_V2", inside, b, w.scalar(outside(width), dtype))
    return a, w.cast(by, INT), inside


def _seen_as(kind: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        (x,) = operands.tensors
        operands.give(w.op("BITCAST", x, shape=x.shape, kind=kind))

    return form


def _refused(node: Node) -> CompileError:
    return CompileError(
        f"{node}: TFLite has no bits of {node.result.type}; cast it to int32 or int64 before, or "
        "choose another backend"
    )


FORMS: Mapping[str, Form] = {
    "bit_and": _bitwise(_and),
    "bit_or": _bitwise(_or),
    "bit_xor": _bitwise(_xor),
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "float_bits": _seen_as(INT),
    "bits_float": _seen_as(FLOAT),
}
