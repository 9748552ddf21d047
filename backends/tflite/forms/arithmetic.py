"""Elementwise ops. They keep the layout of their operands."""

import math
from collections.abc import Mapping

import numpy as np

from pockengine.backends.runtimes.layout_writer import Operands
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.kinds import INT, TRUTH
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import BOOL

SAME = {
    "abs": "ABS",
    "add": "ADD",
    "ceil": "CEIL",
    "cos": "COS",
    "div": "DIV",
    "exp": "EXP",
    "floor": "FLOOR",
    "hard_swish": "HARD_SWISH",
    "log": "LOG",
    "logical_and": "LOGICAL_AND",
    "logical_not": "LOGICAL_NOT",
    "logical_or": "LOGICAL_OR",
    "mul": "MUL",
    "neg": "NEG",
    "pow": "POW",
    "round": "ROUND",
    "rsqrt": "RSQRT",
    "sigmoid": "LOGISTIC",
    "sign": "SIGN",
    "sin": "SIN",
    "sqrt": "SQRT",
    "square": "SQUARE",
    "sub": "SUB",
    "tanh": "TANH",
    "where": "SELECT_V2",
}
"""Ops that equal a TFLite operator."""

COMPARED = {
    "eq": "EQUAL",
    "ge": "GREATER_EQUAL",
    "gt": "GREATER",
    "le": "LESS_EQUAL",
    "lt": "LESS",
    "ne": "NOT_EQUAL",
}

EXTREMES = {"maximum": "MAXIMUM", "minimum": "MINIMUM"}
"""The runtime's operators return the second operand if either is NaN."""

CLAMPED = {(0.0, 6.0): "RELU6", (0.0, 1.0): "RELU_0_TO_1", (-1.0, 1.0): "RELU_N1_TO_1"}
"""Bounds with an operator of their own."""


def _same(op: str) -> Form:
    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        operands.give(w.broadcast(op, *operands.tensors))

    return form


def _compared(op: str) -> Form:
    """Compare; bools as integers, since the runtime has no order for them."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        tensors = operands.tensors
        if node.operands[0].dtype is BOOL:
            tensors = [w.cast(tensor, INT) for tensor in tensors]
        operands.give(w.broadcast(op, *tensors, kind=TRUTH))

    return form


def _relu(w: EntryWriter, node: Node) -> None:
    operands, dtype = Operands(w, node), node.result.dtype
    if dtype.is_float:
        operands.give(w.broadcast("RELU", *operands.tensors))
    else:
        operands.give(w.broadcast("MAXIMUM", *operands.tensors, w.scalar(0, dtype)))


def _clip(w: EntryWriter, node: Node) -> None:
    """Clip with one operator if the bounds have one, else with one per bound."""
    operands, bounds = Operands(w, node), (node.attrs["min"], node.attrs["max"])
    (tensor,) = operands.tensors
    if bounds in CLAMPED:
        operands.give(w.broadcast(CLAMPED[bounds], tensor))
        return
    for op, bound in zip(("MAXIMUM", "MINIMUM"), bounds, strict=True):
        if not math.isinf(bound):
            tensor = w.broadcast(op, w.scalar(bound), tensor)
    operands.give(tensor)


def _extreme(op: str) -> Form:
    """Maximum or minimum that propagates NaN in either operand."""

    def form(w: EntryWriter, node: Node) -> None:
        operands = Operands(w, node)
        a, b = operands.tensors
        first, second = (w.graph.constants.get(value) for value in node.operands)
        if not node.result.dtype.is_float or first is not None:
            operands.give(w.broadcast(op, a, b))
        elif second is not None:
            operands.give(w.broadcast(op, b, a))
        else:
            nan = w.broadcast("NOT_EQUAL", a, a, kind=TRUTH)
            operands.give(w.broadcast("SELECT_V2", nan, a, w.broadcast(op, a, b)))

    return form


def _atan2(w: EntryWriter, node: Node) -> None:
    """ATAN2, which does not broadcast, so operands are expanded first."""
    operands = Operands(w, node)
    y, x = operands.tensors if len(operands.tensors) == 2 else (*operands.tensors, w.scalar(1.0))
    shape = np.broadcast_shapes(y.shape, x.shape)
    operands.give(w.broadcast("ATAN2", w.expand(y, shape), w.expand(x, shape)))


FORMS: Mapping[str, Form] = {
    **{op: _same(name) for op, name in SAME.items()},
    **{op: _compared(name) for op, name in COMPARED.items()},
    **{op: _extreme(name) for op, name in EXTREMES.items()},
    "relu": _relu,
    "clamp": _clip,
    "hardtanh": _clip,
    "atan": _atan2,
    "atan2": _atan2,
}
