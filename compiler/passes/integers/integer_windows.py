"""Averages of integers over image windows: exact sums, then division."""

import math

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import I32
from pockengine.compiler.ops.pool import averaged_pixels
from pockengine.compiler.ops.quantized import fixed_point
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.passes.integers.integer_products import LARGEST_SUM
from pockengine.compiler.passes.integers.integer_values import Real, centered


def window_sums(
    g: Builder, mean: Node, integers: Value, zero: int
) -> tuple[Value, np.ndarray] | None:
    """Sum i8 minus the zero point over each window of an average; None for another op.

    Also returns the number of pixels that a window averages: one for all, or [1, height, width, 1]
    of the result if padding is not counted.
    """
    window = _averaged_window(mean) if lookup(mean.op).means else None
    if window is None:
        return None
    kernel, places = window
    channels = integers.shape[-1]
    ones = g.constant(np.ones((*kernel, 1, channels), np.int8))
    total = g.conv2d(integers, ones, groups=channels, zeros=(zero, 0), **places)
    if total.shape != mean.result.shape:
        total = g.reshape(total, shape=mean.result.shape)
    if not any(places.get("padding", ())):
        return total, np.array(math.prod(kernel))
    counts = averaged_pixels(mean.operands[0].shape, mean.attrs)
    return (total, counts) if counts.all() else None


def axis_sums(g: Builder, mean: Node, real: Real) -> tuple[Value, np.ndarray] | None:
    """Sum i8 minus the zero point along any axes; None if sums could overflow."""
    count = real.integers.type.size // max(mean.result.type.size, 1)
    if mean.op != "reduce_mean" or count * 255 > LARGEST_SUM:
        return None
    return g.reduce_sum(centered(g, real), **mean.attrs), np.array(count)


def _averaged_window(mean: Node) -> tuple[tuple[int, int], dict[str, tuple[int, ...]]] | None:
    """Return the kernel of an average over windows of an image, and their places.

    None for other ops, and if padding counts as pixels.
    """
    shape, attrs = mean.operands[0].shape, mean.attrs
    if mean.op == "avg_pool2d":
        if any(attrs["padding"]) and attrs["count_include_pad"]:
            return None
        return attrs["kernel"], {name: attrs[name] for name in ("stride", "padding")}
    if len(shape) != 4 or not {1, 2}.issuperset(attrs["axes"]):
        return None
    height, width = (shape[axis] if axis in attrs["axes"] else 1 for axis in (1, 2))
    return (height, width), {}


def divided(g: Builder, total: Value, count: np.ndarray) -> Value:
    """Divide i32 by numbers that broadcast, with halves rounded away from zero."""
    number, half = (g.constant(part.astype(np.int32)) for part in (count, count // 2))
    away = g.where(g.gt(total, g.scalar(0, I32)), g.add(total, half), g.sub(total, half))
    return g.quotient(away, number)


def divided_by(g: Builder, total: Value, factor: float, count: int) -> Value:
    """Rescale by a factor and divide, with one multiplier as in TensorFlow Lite's MEAN."""
    multiplier, exponent = (int(part) for part in fixed_point(np.array(factor)))
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    folded = (multiplier << shift) // count
    last = exponent - shift
    return g.rescale(total, g.scalar(folded, I32), g.scalar(last, I32), down=last < 0)
