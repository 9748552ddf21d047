"""Activations of integers with a slope below zero, as TensorFlow Lite computes them."""

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Value
from pockengine.compiler.ir.types import I32
from pockengine.compiler.passes.integers.integer_rescale import rescaled_by
from pockengine.compiler.passes.integers.integer_values import Real, centered

Scaled = tuple[Real, float]
"""Integers and the number that is their scale."""


def slopes_of(value: Value) -> tuple[Value, Value] | None:
    """Return x and the slope of `where(x > 0, x, slope x)`; None for another value."""
    node = value.node
    if node is None or node.op != "where":
        return None
    condition, x, below = node.operands
    above, product = condition.node, below.node
    if above is None or above.op != "gt" or above.operands[0] is not x:
        return None
    if product is None or product.op != "mul" or x not in product.operands:
        return None
    one, other = product.operands
    return x, other if one is x else one


def rectified(
    g: Builder, x: Scaled, slope: Scaled | np.ndarray, target: np.ndarray
) -> Value | None:
    """Rescale x above zero by one multiplier, and slope x below it by another; factors are f32.

    None if a slope is no positive number.
    """
    integers, scale, unit = centered(g, x[0]), np.float32(x[1]), np.float32(target)
    below = integers
    if isinstance(slope, np.ndarray):
        if slope.size != 1 or not slope.item() > 0:
            return None
        factor = np.float32(slope.item())
    else:
        below, factor = g.mul(integers, centered(g, slope[0])), np.float32(slope[1])
    return g.where(
        g.gt(integers, g.scalar(0, I32)),
        rescaled_by(g, integers, np.array(scale / unit)),
        rescaled_by(g, below, np.array(scale * factor / unit)),
    )
