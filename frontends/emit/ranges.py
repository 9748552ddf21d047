"""Ranges of a tensor's elements, as far as the graph determines them."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pockengine.compiler.ir import Builder, Value

Range = tuple[float, float]
"""Minimum and maximum, infinite if unknown."""
ANYTHING: Range = (-math.inf, math.inf)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return ANYTHING if any(map(math.isnan, corners)) else (min(corners), max(corners))


def _same(x: Range) -> Range:
    return x


COMBINED: dict[str, Callable[..., Range]] = {
    **dict.fromkeys(("broadcast_to", "reduce_max", "reduce_min", "reshape", "slice"), _same),
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "cast": _same,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "mul": _product,
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "where": lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
"""The range of an op's result from the ranges of its operands."""


def range_of(g: Builder, value: Value) -> Range:
    """Return the range of a value's elements, from its computation."""
    found: dict[Value, Range] = {}
    for each in _made_of(g, value):
        data = g.graph.constants.get(each)
        if data is not None:
            found[each] = (float(np.min(data)), float(np.max(data)))
        elif each.node is not None and each.node.op in COMBINED:
            parts = [found[operand] for operand in each.node.operands]
            found[each] = _whole(COMBINED[each.node.op](*parts), each)
        else:
            found[each] = ANYTHING
    return found[value]


def _made_of(g: Builder, value: Value) -> Sequence[Value]:
    """Return the values from which the ops above compute a value, operands first, and the value."""
    order: dict[Value, None] = {}
    waiting = [(value, False)]
    while waiting:
        each, ready = waiting.pop()
        if each in order:
            continue
        node = each.node
        if ready or node is None or node.op not in COMBINED or each in g.graph.constants:
            order[each] = None
        else:
            waiting += [(each, True), *((operand, False) for operand in node.operands)]
    return list(order)


def _whole(range_: Range, value: Value) -> Range:
    """Truncate the limits of a range to integers, as a cast does."""
    if value.dtype.numpy.kind != "i":
        return range_
    low, high = (end if math.isinf(end) else float(math.trunc(end)) for end in range_)
    return low, high


def fixed_number(g: Builder, value: Value) -> int | None:
    """Return the integer that a value of one element always equals; None for others."""
    low, high = range_of(g, value)
    return int(low) if low == high and math.isfinite(low) and low == int(low) else None
