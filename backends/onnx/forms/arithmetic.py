"""Elementwise ops. They keep the layout of their operands."""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto

from pockengine.backends.onnx.element_types import NUMBERS
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.types import BOOL, DType
from pockengine.compiler.ops import lookup

SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bit_and": "BitwiseAnd",
    "bit_or": "BitwiseOr",
    "bit_xor": "BitwiseXor",
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
}
"""Ops that equal an ONNX operator."""

ORDERED = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def _same(op: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        operands.give(w.node(op, *operands.tensors))

    return form


def _ordered(op: str) -> Form:
    """Compare; bools as integers, since ONNX has no order for them."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        names = operands.tensors
        if node.operands[0].dtype is BOOL:
            names = [w.node("Cast", name, to=TensorProto.INT32) for name in names]
        operands.give(w.node(op, *names))

    return form


def _square(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    operands.give(w.node("Mul", *operands.tensors * 2))


def _relu(w: EntryWriter, node: Node) -> None:
    operands, dtype = Operands(w, node), node.result.dtype
    if dtype.is_float:
        operands.give(w.node("Relu", *operands.tensors))
    else:
        operands.give(w.node("Max", *operands.tensors, w.scalar(0, dtype)))


def _where(w: EntryWriter, node: Node) -> None:
    """Choose; a gradient is masked by multiplication, since the operator makes three passes.

    Only for a product, which is finite unless the training has already diverged.
    """
    operands = Operands(w, node)
    _, taken, other = node.operands
    zero = w.graph.constants.get(other)
    is_zero = zero is not None and zero.ndim == 0 and zero.item() == 0
    if not (is_zero and w.is_gradient(node.result) and _is_product(w, taken)):
        operands.give(w.node("Where", *operands.tensors))
        return
    condition, name, _ = operands.tensors
    mask = w.node("Cast", condition, to=TensorProto.FLOAT)
    operands.give(w.node("Mul", mask, name))
    w.products.add(node.result)


def _is_product(w: EntryWriter, value: Value) -> bool:
    """Whether a value is a product's result, a selection from one, or a sum of two."""
    maker = value.node
    if maker is None or value.dtype is not DType.F32:
        return False
    parts = maker.operands if maker.op == "add" else (value,)
    return all(
        part in w.products or (part.node is not None and lookup(part.node.op).product)
        for part in parts
    )


def _hard_sigmoid(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    operands.give(w.node("HardSigmoid", *operands.tensors, alpha=1 / 6, beta=0.5))


def _not_equal(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    operands.give(w.node("Not", w.node("Equal", *operands.tensors)))


def _clip(w: EntryWriter, node: Node) -> None:
    operands = Operands(w, node)
    bounds = (w.scalar(node.attrs[name]) for name in ("min", "max"))
    operands.give(w.node("Clip", *operands.tensors, *bounds))


def _quotient(w: EntryWriter, node: Node) -> None:
    """Divide integers, truncating; division by 0 gives -1, and by -1 wraps: neither may trap."""
    operands = Operands(w, node)
    a, b = operands.tensors
    operands.give(_divided(w, a, b, node.result.dtype))


def _divided(w: EntryWriter, a: str, b: str, dtype: DType) -> str:
    minus = w.scalar(-1, dtype)
    by_zero = w.node("Equal", b, w.scalar(0, dtype))
    by_minus = w.node("Equal", b, minus)
    safe = w.node("Where", w.node("Or", by_zero, by_minus), w.scalar(1, dtype), b)
    plain = w.node("Where", by_minus, w.node("Mul", a, minus), w.node("Div", a, safe))
    return w.node("Where", by_zero, minus, plain)


def _rem(w: EntryWriter, node: Node) -> None:
    operands, dtype = Operands(w, node), node.result.dtype
    a, b = operands.tensors
    if dtype.is_float:
        operands.give(w.node("Mod", a, b, fmod=1))
    else:
        operands.give(w.node("Sub", a, w.node("Mul", _divided(w, a, b, dtype), b)))


def _cast(w: EntryWriter, node: Node) -> None:
    """Convert; floats saturate to the nearest integer, and NaN becomes 0."""
    operands = Operands(w, node)
    (name,), source, target = operands.tensors, node.operands[0].dtype, node.result.dtype
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


FORMS: Mapping[str, Form] = {
    **{op: _same(onnx_op) for op, onnx_op in SAME.items()},
    **{op: _ordered(onnx_op) for op, onnx_op in ORDERED.items()},
    "square": _square,
    "relu": _relu,
    "where": _where,
    "hard_sigmoid": _hard_sigmoid,
    "ne": _not_equal,
    "clamp": _clip,
    "hardtanh": _clip,
    "quotient": _quotient,
    "rem": _rem,
    "cast": _cast,
}
