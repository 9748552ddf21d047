"""Bits of integers, of which the runtime has exclusive or and shifts to the right, of 32 bits.

Integers of 64 bits are seen as pairs of 32, but for shifts, which are refused. What both operands
have follows from a + b = (a ^ b) + 2 (a & b), in 64 bits.
"""

from collections.abc import Callable, Mapping

from pockengine.backends.runtimes.held import Operands
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.kinds import FLOAT, INT, TRUTH, UNSIGNED, WIDE
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, I64, Node
from pockengine.errors import CompileError

Word = Callable[[EntryWriter, LiteTensor, LiteTensor], LiteTensor]
"""What is done to integers of 32 bits."""


def _xor(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    return w.broadcast("BITWISE_XOR", a, b)


def _and(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """Halve a + b - (a ^ b), which has 33 bits: those below the sign, and the sign."""
    total = w.broadcast("ADD", w.cast(a, WIDE), w.cast(b, WIDE))
    twice = w.broadcast("SUB", total, w.cast(_xor(w, a, b), WIDE))
    half = w.cast(w.broadcast("RIGHT_SHIFT", _lower(w, twice), w.unsigned(1)), INT)
    signed = w.broadcast("ADD", half, w.scalar(-(2**31), I32))
    negative = w.broadcast("LESS", twice, w.scalar(0, I64), kind=TRUTH)
    return w.broadcast("SELECT_V2", negative, signed, half)


def _or(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """Add what one of them has, and what both have."""
    return w.broadcast("ADD", _xor(w, a, b), _and(w, a, b))


def _bitwise(word: Word) -> Form:
    """Of both operands; those of 64 bits get a last dimension of two words."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        a, b = operands.tensors
        if node.result.dtype is I32:
            operands.give(word(w, a, b))
        elif node.result.dtype is I64:
            found = word(w, _words(w, a), _words(w, b))
            operands.give(w.op("BITCAST", found, shape=found.shape[:-1], kind=WIDE))
        else:
            raise _refused(node)

    return form


def _shift_left(w: EntryWriter, node: Node) -> None:
    """Multiply by a power of two, and keep the lower 32 bits."""
    operands = Operands(w, node)
    a, by, inside = _shifted(w, node, operands, 0)
    power = w.cast(w.broadcast("POW", w.scalar(2.0), w.cast(by, FLOAT)), WIDE)
    low = _lower(w, w.broadcast("MUL", w.cast(a, WIDE), power))
    moved = w.op("BITCAST", low, shape=low.shape, kind=INT)
    operands.give(w.broadcast("SELECT_V2", inside, moved, w.scalar(0, I32)))


def _shift_right(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    a, by, _ = _shifted(w, node, operands, 31)
    operands.give(w.broadcast("RIGHT_SHIFT", a, by))


def _shifted(
    w: EntryWriter, node: Node, operands: Operands[LiteTensor], outside: int
) -> tuple[LiteTensor, ...]:
    """Return a, the bits to shift by, `outside` where they are not of the width, and where."""
    if node.result.dtype is not I32:
        raise _refused(node)
    a, b = operands.tensors
    least = w.broadcast("GREATER_EQUAL", b, w.scalar(0, I32), kind=TRUTH)
    most = w.broadcast("LESS", b, w.scalar(32, I32), kind=TRUTH)
    inside = w.broadcast("LOGICAL_AND", least, most)
    return a, w.broadcast("SELECT_V2", inside, b, w.scalar(outside, I32)), inside


def _lower(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """The lower 32 bits of 64, without a sign."""
    return w.cast(w.broadcast("FLOOR_MOD", x, w.scalar(2**32, I64)), UNSIGNED)


def _words(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    return w.op("BITCAST", x, shape=(*x.shape, 2), kind=INT)


def _seen_as(kind: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        (x,) = operands.tensors
        operands.give(w.op("BITCAST", x, shape=x.shape, kind=kind))

    return form


def _refused(node: Node) -> CompileError:
    return CompileError(
        f"{node}: TFLite shifts integers of 32 bits alone, and has no bits of {node.result.type}; "
        "cast them to int32 before, or choose another backend"
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
