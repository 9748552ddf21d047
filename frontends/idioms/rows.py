"""Recognize row operations: softmax, and log-sum-exp."""

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import STOPPING, Finder, core, made_by, reduced_last


def _row_maximum(finder: Finder, value: Value, x: Value) -> bool:
    """Whether a value is the maximum of each row of x, however it is guarded against infinities."""
    node = core(value, STOPPING).node  # a gradient through it would cancel
    while node is not None and node.op in ("maximum", "where"):
        parts = node.operands[-2:]
        inner = [part for part in parts if finder.number(part) is None]
        node = core(inner[0], STOPPING).node if len(inner) == 1 else None
    return (
        node is not None
        and node.op == "reduce_max"
        and node.operands[0] is x
        and reduced_last(node)
    )


def _shifted(finder: Finder, value: Value) -> Value | None:
    """x, for x minus the maximum of its row."""
    node = value.node
    if node is None or node.op != "sub":
        return None
    x, most = node.operands
    return x if x.shape == value.shape and _row_maximum(finder, most, x) else None


def softmax(finder: Finder, node: Node) -> Value | None:
    """exp(x - max) / sum of exp(x - max)."""
    top, bottom = node.operands
    total, exponent = made_by(bottom, "reduce_sum"), top.node
    if total is None or exponent is None or exponent.op != "exp":
        return None
    if total.operands[0] is not top or not reduced_last(total):
        return None
    x = _shifted(finder, exponent.operands[0])
    return None if x is None else finder.g.softmax(x)


def log_softmax(finder: Finder, node: Node) -> Value | None:
    """x - max - log sum of exp(x - max)."""
    shifted, log = node.operands[0], made_by(node.operands[1], "log")
    total = made_by(log.operands[0], "reduce_sum") if log else None
    exponent = total.operands[0].node if total else None
    if exponent is None or exponent.op != "exp" or exponent.operands[0] is not shifted:
        return None
    x = _shifted(finder, shifted)
    return None if x is None or not reduced_last(total) else finder.g.log_softmax(x)


def log_sum_exp(finder: Finder, node: Node | None) -> Value | None:
    """x, for the logarithm of the sum of exp(x) over each row, guarded by its maximum."""
    if node is None or node.op != "add":
        return None
    for log, most in (node.operands, node.operands[::-1]):
        inner = made_by(log, "log")
        total = made_by(inner.operands[0], "abs") or inner if inner else None
        total = made_by(total.operands[0], "reduce_sum") if total else None
        exponent = total.operands[0].node if total and reduced_last(total) else None
        if exponent is None or exponent.op != "exp":
            continue
        x = _shifted(finder, exponent.operands[0])
        if x is not None and _row_maximum(finder, most, x):
            return x
    return None
