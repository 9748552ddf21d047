"""Infer the signs of a value's numbers from the graph being built."""

from enum import IntEnum

from pockengine.compiler.ir import Builder, Value

NOT_NEGATIVE = frozenset({"abs", "exp", "relu", "sigmoid", "softmax", "sqrt", "square"})
"""Ops whose results are never negative; all may give 0, if only by underflow."""

KEEPING = frozenset(
    {"broadcast_to", "concat", "reshape", "slice", "stop_gradient", "transpose"}
    | {"reduce_max", "reduce_mean", "reduce_min", "reduce_sum"}
)
"""Ops whose results are positive, or nonnegative, if all their operands are."""

COMBINING = KEEPING | {"add", "div", "maximum", "mul"}
"""Ops whose sign follows from the signs of their operands."""


class Sign(IntEnum):
    """Sign of all numbers of a value, except NaN; a greater one is more specific."""

    UNKNOWN = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


def sign_of(g: Builder, value: Value) -> Sign:
    """Return the sign that follows from the constants and ops of a value.

    Each value is visited once: paths through a residual net double with every block.
    """
    known: dict[Value, Sign] = {}
    pending = [value]
    while pending:
        answer = _sign(g, pending[-1], known)
        if isinstance(answer, Sign):
            known[pending.pop()] = answer
        else:
            pending.extend(answer)
    return known[value]


def _sign(g: Builder, value: Value, known: dict[Value, Sign]) -> Sign | list[Value]:
    """Return a value's sign, or the operands whose signs must be known first."""
    data = g.graph.constants.get(value)
    if data is not None:
        return Sign(int((data >= 0).all()) + int((data > 0).all()))
    if value.node is None:
        return Sign.UNKNOWN
    op, operands = value.node.op, value.node.operands
    if op in NOT_NEGATIVE or _is_variance(value):
        return Sign.NOT_NEGATIVE
    if op == "custom_gradient":
        operands = operands[:1]
    elif op not in COMBINING:
        return Sign.UNKNOWN
    unknown = [operand for operand in operands if operand not in known]
    return unknown or _combine(op, [known[operand] for operand in operands])


def _combine(op: str, signs: list[Sign]) -> Sign:
    """Return the sign of an op's result from those of its operands."""
    least, most = min(signs), max(signs)
    if op == "maximum":
        return most
    if op == "add":
        return most if least >= Sign.NOT_NEGATIVE else Sign.UNKNOWN
    if op in ("div", "mul"):  # of positive numbers, they underflow to 0
        return min(least, Sign.NOT_NEGATIVE)
    return least


def _is_variance(value: Value) -> bool:
    """Match mean(x^2) - mean(x)^2, which is below 0 by rounding only."""
    node = value.node
    if node is None or node.op != "sub":
        return False
    ops = [operand.node.op if operand.node else "" for operand in node.operands]
    return ops == ["reduce_mean", "square"]
