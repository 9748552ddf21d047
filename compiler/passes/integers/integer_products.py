"""Products of integers: sizes of their sums, and axes of their operands' scales."""

import math

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value

LARGEST_TERM = 255 * 128
"""Maximum magnitude of a product of two i8, the first with a zero point."""

LARGEST_SUM = 2**31 - 1

MOST_TERMS = LARGEST_SUM // LARGEST_TERM
"""Number of products whose i32 sum cannot overflow."""


def terms(node: Node) -> int:
    """Return the maximum number of products in a product's sum."""
    first, second = (operand.shape for operand in node.operands)
    if node.op == "matmul":
        return first[-2] if node.attrs["transpose_a"] else first[-1]
    if node.op == "conv2d_dw":
        return math.prod(second[:3])
    taps = second[0] * second[1]
    return taps * (second[2] if node.op == "conv2d" else second[3] // node.attrs["groups"])


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
