"""Recognize dropout, which is removed in prediction."""

import numpy as np

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import Finder, unbroadcast

DIGITS = 7
"""Kept digits of a rate, which is 1 minus a float32."""


def dropout(finder: Finder, node: Node) -> Value | None:
    """where(uniform >= p, x / (1 - p), 0), perhaps with one number for several elements of x."""
    g = finder.g
    condition, scaled, other = node.operands
    test = unbroadcast(condition).node
    if test is None or test.op not in ("ge", "lt") or finder.number(other) != 0:
        return None
    bound, draw = finder.number(test.operands[1]), _draw(finder, test.operands[0])
    if bound is None or draw is None or not 0 < bound < 1:
        return None
    rate = bound if test.op == "ge" else round(1 - bound, DIGITS)
    x = _unscaled(finder, scaled, 1 - rate)
    if x is None or x.shape != node.result.shape:
        return None
    seed, settings = draw.operands[0], {"p": rate, "stream": draw.attrs["stream"]}
    if draw.result.shape == x.shape:
        return g.dropout(x, seed, **settings)
    ones = g.constant(np.ones(draw.result.shape, np.float32))
    return g.mul(x, g.dropout(ones, seed, **settings))


def _draw(finder: Finder, value: Value) -> Node | None:
    """Match random numbers in [0, 1), also times 1 or plus 0."""
    parts = [(weight, part) for weight, part in finder.linear(value) if finder.number(part) != 0]
    if len(parts) != 1 or parts[0][0] != 1:
        return None
    node = unbroadcast(parts[0][1]).node
    return node if node is not None and node.op == "random_uniform" else None


def _unscaled(finder: Finder, scaled: Value, share: float) -> Value | None:
    """Return x of x / share, or of x times its inverse."""
    node = scaled.node
    if node is None or node.op not in ("div", "mul"):
        return None
    if node.op == "div":
        x, number = node.operands[0], finder.number(node.operands[1])
    else:
        parts = finder.split(node)
        if parts is None or not parts[1]:
            return None
        x, number = parts[0], 1 / parts[1]
    return x if number is not None and abs(number / share - 1) < 1e-5 else None
