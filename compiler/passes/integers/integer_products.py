"""Products of integers: sizes of their sums, and axes of their operands' scales."""

import math

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, I32
from pockengine.compiler.passes.integers.integer_values import Real, centered

LARGEST_TERM = 255 * 128
"""Maximum magnitude of a product of two i8, the first with a zero point."""

LARGEST_SUM = 2**31 - 1

MOST_TERMS = LARGEST_SUM // LARGEST_TERM
"""Number of products whose i32 sum cannot overflow."""

EXACT_SUM = 1 << 24
"""Largest sum of integers that f32 holds exactly, whatever the order."""


def terms(node: Node) -> int:
    """Return the maximum number of products in a product's sum."""
    first, second = (operand.shape for operand in node.operands)
    if node.op == "matmul":
        return first[-2] if node.attrs["transpose_a"] else first[-1]
    if node.op == "conv2d_dw":
        return math.prod(second[:3])
    taps = second[0] * second[1]
    return taps * (second[2] if node.op == "conv2d" else second[3] // node.attrs["groups"])


def largest_sum(product: Node) -> int:
    """Return the maximum magnitude of a product's sums, or of those that `exact_sums` casts."""
    return EXACT_SUM if product.op == "cast" else terms(product) * LARGEST_TERM


def by_one_matrix(node: Node) -> bool:
    """Whether kernels multiply integers: not by a matrix per batch, nor with both transposed."""
    if node.op != "matmul":
        return True
    first, second = (len(operand.shape) for operand in node.operands)
    return second == 2 and not (
        node.attrs["transpose_a"] and (node.attrs["transpose_b"] or first != 2)
    )


def exact_sums(g: Builder, node: Node, reals: tuple[Real, Real]) -> Value | None:
    """Sum in f32, cast to i32; None if sums could exceed those that f32 holds exactly."""
    if terms(node) * 255**2 > EXACT_SUM:
        return None
    pair = (g.cast(centered(g, real), dtype=F32.value) for real in reals)
    return g.cast(g.emit(node.op, *pair, **{**node.attrs, "zeros": (0, 0)}).result, dtype=I32.value)


def is_linear(product: Node) -> bool:
    """Whether a product is FULLY_CONNECTED in TensorFlow Lite, not BATCH_MATMUL."""
    return product.op == "matmul" and len(product.operands[1].shape) == 2


def keeps_channels(node: Node, place: int) -> bool:
    """Whether the last axis of an operand is an axis of the result, not summed over."""
    if node.op == "matmul":
        return bool(node.attrs["transpose_a"] if place == 0 else not node.attrs["transpose_b"])
    return node.op == "conv2d_dw"


def multiplied(g: Builder, node: Node, *operands: tuple[Value, int]) -> Value:
    """Build the same product with other operands and zero points."""
    values, zeros = zip(*operands, strict=True)
    return g.emit(node.op, *values, **{**node.attrs, "zeros": zeros}).result


def scale_axis(node: Node, place: int, scale: Value) -> str | None:
    """Return the axis of an operand's scale: all sums, the result's last axis, or the inner axis.

    None for any other axis.
    """
    if not scale.shape:
        return "all"
    if place == 0 or (node.op == "matmul" and len(node.operands[1].shape) != 2):
        return None
    if node.op == "matmul":
        along_rows = len(scale.shape) == 2
        if node.attrs["transpose_a"]:
            return None
        return "last" if along_rows == node.attrs["transpose_b"] else "inner"
    if len(scale.shape) == 1:  # the features of HWIO
        return {"conv2d": "last", "conv2d_dx": "inner"}.get(node.op)
    if len(scale.shape) != 2 or node.attrs["groups"] != 1:
        return None
    return {"conv2d": "inner", "conv2d_dx": "last"}.get(node.op)
