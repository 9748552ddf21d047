"""Truncating division of integers, and remainders."""

from typing import TYPE_CHECKING

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops.elementwise import elementwise, integers, numbers

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide integers, truncating; a / 0 is -1, as in XLA, and overflow wraps."""
    safe = np.where((b == 0) | (b == -1), 1, b)
    floor = np.floor_divide(a, safe)
    floor += (floor < 0) & (floor * safe != a)
    return np.where(b == 0, -1, np.where(b == -1, -a, floor))


def _rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the remainder of truncating division, with a's sign; a if an integer b is 0."""
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    return np.asarray(a - _quotient(a, b) * b)


def _rem_db(g: "Builder", node: Node, dy: Value) -> Value:
    """y = a - trunc(a / b) b  =>  db = -dy trunc(a / b)."""
    return g.neg(g.mul(dy, g.trunc(g.div(*node.operands))))


elementwise("quotient", "a b", _quotient, infer=integers)
elementwise("rem", "a b", _rem, infer=numbers, vjp={"a": lambda g, n, dy: dy, "b": _rem_db})
