"""Elementwise ops. They stay in the layout that their operands lie in."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import BOOL, DType

SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "hard_swish": "HardSwish",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "maximum": "Max",
    "minimum": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "pow": "Pow",
    "reciprocal": "Reciprocal",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
}
"""Ops that mean what the operator of ONNX means."""

ORDERED = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


class _Operands:
    """A node's operands, read in the layout that most of them lie in."""

    def __init__(self, w: EntryWriter, node: Node) -> None:
        self.w, self.node = w, node
        self.layout = w.common_layout(node.operands, node.result.shape)
        self.names = [w.aligned(value, self.layout) for value in node.operands]

    def give(self, name: str) -> None:
        """Bind the result."""
        self.w.bind(self.node.result, name, self.layout)


def _same(op: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        operands = _Operands(w, node)
        operands.give(w.node(op, *operands.names))

    return form


def _ordered(op: str) -> Form:
    """Compare; truth values as integers, for they have no order in ONNX."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = _Operands(w, node)
        names = operands.names
        if node.operands[0].dtype is BOOL:
            names = [w.node("Cast", name, to=TensorProto.INT32) for name in names]
        operands.give(w.node(op, *names))

    return form


def _square(w: EntryWriter, node: Node) -> None:
    operands = _Operands(w, node)
    operands.give(w.node("Mul", *operands.names * 2))


def _relu(w: EntryWriter, node: Node) -> None:
    operands, dtype = _Operands(w, node), node.result.dtype
    if dtype.is_float:
        operands.give(w.node("Relu", *operands.names))
    else:
        operands.give(w.node("Max", *operands.names, w.scalar(0, dtype)))


def _hard_sigmoid(w: EntryWriter, node: Node) -> None:
    operands = _Operands(w, node)
    operands.give(w.node("HardSigmoid", *operands.names, alpha=1 / 6, beta=0.5))


def _not_equal(w: EntryWriter, node: Node) -> None:
    operands = _Operands(w, node)
    operands.give(w.node("Not", w.node("Equal", *operands.names)))


def _clip(w: EntryWriter, node: Node) -> None:
    operands = _Operands(w, node)
    bounds = (w.scalar(node.attrs[name]) for name in ("min", "max"))
    operands.give(w.node("Clip", *operands.names, *bounds))


def _quotient(w: EntryWriter, node: Node) -> None:
    """Divide integers towards zero; by 0 it is -1, and by -1 it wraps: neither may trap."""
    operands = _Operands(w, node)
    a, b = operands.names
    operands.give(_divided(w, a, b, node.result.dtype))


def _divided(w: EntryWriter, a: str, b: str, dtype: DType) -> str:
    minus = w.scalar(-1, dtype)
    by_zero = w.node("Equal", b, w.scalar(0, dtype))
    by_minus = w.node("Equal", b, minus)
    safe = w.node("Where", w.node("Or", by_zero, by_minus), w.scalar(1, dtype), b)
    plain = w.node("Where", by_minus, w.node("Mul", a, minus), w.node("Div", a, safe))
    return w.node("Where", by_zero, minus, plain)


def _rem(w: EntryWriter, node: Node) -> None:
    operands, dtype = _Operands(w, node), node.result.dtype
    a, b = operands.names
    if dtype.is_float:
        operands.give(w.node("Mod", a, b, fmod=1))
    else:
        operands.give(w.node("Sub", a, w.node("Mul", _divided(w, a, b, dtype), b)))


def _cast(w: EntryWriter, node: Node) -> None:
    """Convert; floats go to the nearest integer that there is, and NaN to 0."""
    operands = _Operands(w, node)
    (name,), source, target = operands.names, node.operands[0].dtype, node.result.dtype
    number = NUMBERS[target]
    if not (source.is_float and target.is_integer):
        operands.give(w.node("Cast", name, to=number))
        return
    if source is not DType.F32:
        name = w.node("Cast", name, to=TensorProto.FLOAT)
    limits = np.iinfo(str(target.numpy))
    over = w.node("GreaterOrEqual", name, w.scalar(float(limits.max) + 1))
    under = w.node("Less", name, w.scalar(float(limits.min)))
    odd = w.node("Or", w.node("Or", over, under), w.node("IsNaN", name))
    whole = w.node("Cast", w.node("Where", odd, w.scalar(0.0), name), to=number)
    low = w.node("Where", under, w.scalar(limits.min, target), whole)
    operands.give(w.node("Where", over, w.scalar(limits.max, target), low))


def _as_it_is(w: EntryWriter, node: Node) -> None:
    w.share(node.result, node.operands[0])


FORMS: Mapping[str, Form] = {
    **{op: _same(onnx_op) for op, onnx_op in SAME.items()},
    **{op: _ordered(onnx_op) for op, onnx_op in ORDERED.items()},
    "square": _square,
    "relu": _relu,
    "hard_sigmoid": _hard_sigmoid,
    "ne": _not_equal,
    "clamp": _clip,
    "hardtanh": _clip,
    "quotient": _quotient,
    "rem": _rem,
    "cast": _cast,
    "stop_gradient": _as_it_is,
}
