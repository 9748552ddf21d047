"""Recognize dropout written with random numbers: stochastic depth, which drops whole rows.

As an op it is removed in prediction, as in these models.
"""

import numpy as np

from pockengine.compiler.ir import Value
from pockengine.compiler.ir.graph import Node
from pockengine.frontends.idioms.finder import Finder, Rules, core, made_by

DIGITS = 6
"""Compared digits of a probability, which is a float32 in the graph."""


def _scaled_bernoulli(finder: Finder, node: Node) -> Value | None:
    """(uniform < share) / share."""
    test, share = made_by(node.operands[0], "cast"), finder.number(node.operands[1])
    below = made_by(test.operands[0], "lt") if test else None
    if below is None or share is None or not _equal(finder.number(below.operands[1]), share):
        return None
    return _survival(finder, below.operands[0], share)


def _floored(finder: Finder, node: Node) -> Value | None:
    """x / share floor(uniform + share)."""
    for x, factor in (node.operands, node.operands[::-1]):
        scaled, floor = made_by(x, "div"), made_by(factor, "floor")
        total = made_by(floor.operands[0], "add") if floor else None
        parts = finder.split(total) if total else None
        if (
            scaled is None
            or parts is None
            or not _equal(finder.number(scaled.operands[1]), parts[1])
        ):
            continue
        survival = _survival(finder, parts[0], parts[1])
        if survival is not None and scaled.result.shape == node.result.shape:
            shape = core(factor).shape if factor.shape == survival.shape else factor.shape
            return finder.g.mul(scaled.operands[0], finder.g.reshape(survival, shape=shape))
    return None


def _survival(finder: Finder, draw: Value, share: float) -> Value | None:
    """Draw 1 / share for this share of the elements, else 0."""
    node = made_by(draw, "random_uniform")
    if node is None or not 0 < share <= 1:
        return None
    ones = finder.g.constant(np.ones(draw.shape, np.float32))
    p = round(1 - share, DIGITS)
    return finder.g.dropout(ones, node.operands[0], p=p, stream=node.attrs["stream"])


def _equal(number: float | None, other: float) -> bool:
    return number is not None and round(number - other, DIGITS) == 0


DROPPED_PATHS: Rules = {"div": (_scaled_bernoulli,), "mul": (_floored,)}
