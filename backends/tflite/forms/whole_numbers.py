"""Conversions, and integer division with remainder."""

from collections.abc import Mapping

import numpy as np

from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.backends.tflite.forms.bits import lowest_bit
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.wide import divided, logarithm
from pockengine.backends.tflite.kinds import FLOAT, KINDS, TRUTH
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, I64, Node
from pockengine.compiler.ir.types import DType


def _cast(w: EntryWriter, node: Node) -> None:
    """Convert; floats saturate to the nearest integer, and NaN becomes 0."""
    operands = Operands(w, node)
    (x,), source, target = operands.tensors, node.operands[0].dtype, node.result.dtype
    if not (source.is_float and target.is_integer):
        operands.give(w.cast(x, KINDS[target]))
        return
    x, limits = w.cast(x, FLOAT), np.iinfo(str(target.numpy))
    over = w.broadcast("GREATER_EQUAL", x, w.scalar(float(limits.max) + 1), kind=TRUTH)
    under = w.broadcast("LESS", x, w.scalar(float(limits.min)), kind=TRUTH)
    nan = w.broadcast("NOT_EQUAL", x, x, kind=TRUTH)
    odd = w.broadcast("LOGICAL_OR", w.broadcast("LOGICAL_OR", over, under), nan)
    whole = w.cast(w.broadcast("SELECT_V2", odd, w.scalar(0.0), x), KINDS[target])
    low = w.broadcast("SELECT_V2", under, w.scalar(limits.min, target), whole)
    operands.give(w.broadcast("SELECT_V2", over, w.scalar(limits.max, target), low))


def _quotient(w: EntryWriter, node: Node) -> None:
    """Divide integers, truncating; division by 0 gives -1, and by -1 wraps: neither may trap."""
    operands, dtype = Operands(w, node), node.result.dtype
    a, b = operands.tensors
    minus, by_zero, by_minus, safe = _safe(w, b, dtype)
    wrapped = w.broadcast("MUL", a, minus)
    towards_zero = w.broadcast("DIV", a, safe) if dtype is I32 else _wide_quotient(w, a, safe)
    plain = w.broadcast("SELECT_V2", by_minus, wrapped, towards_zero)
    operands.give(w.broadcast("SELECT_V2", by_zero, minus, plain))


def _wide_quotient(w: EntryWriter, a: LiteTensor, b: LiteTensor) -> LiteTensor:
    """Subtract the remainder, which the runtime has for 64 bits, and divide exactly."""
    multiple = w.broadcast("SUB", a, _left_over(w, a, b, I64))
    return divided(w, multiple, b, logarithm(w, lowest_bit(w, b)))


def _safe(w: EntryWriter, b: LiteTensor, dtype: DType) -> tuple[LiteTensor, ...]:
    """Return -1, whether b is 0, whether it is -1, and b with 1 in place of both."""
    minus = w.scalar(-1, dtype)
    by_zero = w.broadcast("EQUAL", b, w.scalar(0, dtype), kind=TRUTH)
    by_minus = w.broadcast("EQUAL", b, minus, kind=TRUTH)
    either = w.broadcast("LOGICAL_OR", by_zero, by_minus)
    return minus, by_zero, by_minus, w.broadcast("SELECT_V2", either, w.scalar(1, dtype), b)


def _rem(w: EntryWriter, node: Node) -> None:
    """Remainder with a's sign; division by 0 gives a."""
    operands, dtype = Operands(w, node), node.result.dtype
    a, b = operands.tensors
    if dtype.is_float:
        left = w.broadcast("FLOOR_MOD", w.broadcast("ABS", a), w.broadcast("ABS", b))
        operands.give(w.broadcast("MUL", w.broadcast("SIGN", a), left))
        return
    _, by_zero, _, safe = _safe(w, b, dtype)
    operands.give(w.broadcast("SELECT_V2", by_zero, a, _left_over(w, a, safe, dtype)))


def _left_over(w: EntryWriter, a: LiteTensor, b: LiteTensor, dtype: DType) -> LiteTensor:
    """Return the remainder with a's sign; b is neither 0 nor -1."""
    zero = w.scalar(0, dtype)
    left = w.broadcast("FLOOR_MOD", a, b)  # it has the sign of b
    signs = (w.broadcast("LESS", x, zero, kind=TRUTH) for x in (a, b))
    differ = w.broadcast("NOT_EQUAL", *signs, kind=TRUTH)
    remains = w.broadcast("NOT_EQUAL", left, zero, kind=TRUTH)
    other = w.broadcast("LOGICAL_AND", differ, remains)
    return w.broadcast("SELECT_V2", other, w.broadcast("SUB", left, b), left)


FORMS: Mapping[str, Form] = {"cast": _cast, "quotient": _quotient, "rem": _rem}
