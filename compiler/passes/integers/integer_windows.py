"""Averages of integers over image windows: exact sums, then division."""

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import I32
from pockengine.compiler.ops.quantized import fixed_point
from pockengine.compiler.ops.registry import lookup


def window_sums(g: Builder, mean: Node, integers: Value, zero: int) -> tuple[Value, int] | None:
    """Sum i8 minus the zero point over each window of an average; None for another op.

    Also returns the size of a window.
    """
    window = _averaged_window(mean) if lookup(mean.op).means else None
    if window is None:
        return None
    kernel, stride = window
    channels = integers.shape[-1]
    ones = g.constant(np.ones((*kernel, 1, channels), np.int8))
    total = g.conv2d(integers, ones, stride=stride, groups=channels, zeros=(zero, 0))
    if total.shape != mean.result.shape:
        total = g.reshape(total, shape=mean.result.shape)
    return total, kernel[0] * kernel[1]


def _averaged_window(mean: Node) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return kernel and stride of an average over whole windows of an image; None for other ops."""
    shape = mean.operands[0].shape
    if mean.op == "avg_pool2d":
        return None if any(mean.attrs["padding"]) else (mean.attrs["kernel"], mean.attrs["stride"])
    if len(shape) != 4 or not {1, 2}.issuperset(mean.attrs["axes"]):
        return None
    height, width = (shape[axis] if axis in mean.attrs["axes"] else 1 for axis in (1, 2))
    return (height, width), (1, 1)


def divided(g: Builder, total: Value, count: int) -> Value:
    """Divide i32 by a number, with halves rounded away from zero."""
    half = g.scalar(count // 2, I32)
    away = g.where(g.gt(total, g.scalar(0, I32)), g.add(total, half), g.sub(total, half))
    return g.quotient(away, g.scalar(count, I32))


def divided_by(g: Builder, total: Value, factor: float, count: int) -> Value:
    """Rescale by a factor and divide, with one multiplier as in TensorFlow Lite's MEAN."""
    multiplier, exponent = (int(part) for part in fixed_point(np.array(factor)))
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    folded = (multiplier << shift) // count
    last = exponent - shift
    return g.rescale(total, g.scalar(folded, I32), g.scalar(last, I32), down=last < 0)
