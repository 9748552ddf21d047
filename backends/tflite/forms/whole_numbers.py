"""Conversions, and divisions with a remainder."""

from collections.abc import Mapping

import numpy as np

from pockengine.backends.runtimes.held import Operands
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.kinds import FLOAT, KINDS, TRUTH
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import I32, Node
from pockengine.compiler.ir.types import DType
from pockengine.errors import CompileError


def _cast(w: EntryWriter, node: Node) -> None:
    """Convert; floats go to the nearest integer that there is, and NaN to 0."""
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
    """Divide integers towards zero; by 0 it is -1, and by -1 it wraps: neither may trap."""
    if node.result.dtype is not I32:
        raise CompileError(
            f"{node}: TFLite divides integers of 32 bits alone, not {node.result.type}; cast "
            "them to int32 before, or choose another backend"
        )
    operands = Operands(w, node)
    a, b = operands.tensors
    minus, by_zero, by_minus, safe = _safe(w, b, I32)
    wrapped = w.broadcast("MUL", a, minus)
    plain = w.broadcast("SELECT_V2", by_minus, wrapped, w.broadcast("DIV", a, safe))
    operands.give(w.broadcast("SELECT_V2", by_zero, minus, plain))


def _safe(w: EntryWriter, b: LiteTensor, dtype: DType) -> tuple[LiteTensor, ...]:
    """Return -1, where b is 0, where it is -1, and b with 1 in the place of both."""
    minus = w.scalar(-1, dtype)
    by_zero = w.broadcast("EQUAL", b, w.scalar(0, dtype), kind=TRUTH)
    by_minus = w.broadcast("EQUAL", b, minus, kind=TRUTH)
    either = w.broadcast("LOGICAL_OR", by_zero, by_minus)
    return minus, by_zero, by_minus, w.broadcast("SELECT_V2", either, w.scalar(1, dtype), b)


def _rem(w: EntryWriter, node: Node) -> None:
    """What is left of a, with its sign; by 0 it is a itself."""
    operands, dtype = Operands(w, node), node.result.dtype
    a, b = operands.tensors
    if dtype.is_float:
        left = w.broadcast("FLOOR_MOD", w.broadcast("ABS", a), w.broadcast("ABS", b))
        operands.give(w.broadcast("MUL", w.broadcast("SIGN", a), left))
        return
    zero = w.scalar(0, dtype)
    _, by_zero, _, safe = _safe(w, b, dtype)
    left = w.broadcast("FLOOR_MOD", a, safe)  # it has the sign of b
    signs = (w.broadcast("LESS", x, zero, kind=TRUTH) for x in (a, safe))
    differ = w.broadcast("NOT_EQUAL", *signs, kind=TRUTH)
    rest = w.broadcast("NOT_EQUAL", left, zero, kind=TRUTH)
    other = w.broadcast("LOGICAL_AND", differ, rest)
    turned = w.broadcast("SELECT_V2", other, w.broadcast("SUB", left, safe), left)
    operands.give(w.broadcast("SELECT_V2", by_zero, a, turned))


FORMS: Mapping[str, Form] = {"cast": _cast, "quotient": _quotient, "rem": _rem}
