"""Bitwise operations of frameworks on integers and floats, in our ops."""

import numpy as np

from pockengine.compiler.ir import F32, I32, I64, Builder, DType
from pockengine.frontends import emit
from pockengine.frontends.emit.division import remainder
from pockengine.frontends.layout import Tensor

OF_32 = 1 << 32


def unsigned(g: Builder, x: Tensor) -> Tensor:
    """Return the bits of 32-bit integers as numbers from 0 on, in 64 bits."""
    return remainder(g, emit.cast(g, x, I64), OF_32, "floor")


def wrapped(g: Builder, x: Tensor, dtype: np.dtype) -> Tensor:
    """Truncate integers to the bits of a narrower type."""
    limits = np.iinfo(dtype)
    mask, lowest = int(limits.max) - int(limits.min), int(limits.min)
    if not lowest:
        return emit.arithmetic(g, "bit_and", x, mask)
    lifted = emit.arithmetic(g, "bit_and", emit.arithmetic(g, "sub", x, lowest), mask)
    return emit.arithmetic(g, "add", lifted, lowest)


def inverted(g: Builder, x: Tensor) -> Tensor:
    """Turn each bit."""
    return emit.arithmetic(g, "sub", -1, x)


def shifted_logically(g: Builder, x: Tensor, by: Tensor) -> Tensor:
    """Shift 32-bit integers to the right, zeros coming in."""
    moved = emit.elementwise(g, "shift_right", unsigned(g, x), emit.cast(g, by, I64))
    return emit.cast(g, moved, x.dtype)


def counted(g: Builder, x: Tensor) -> Tensor:
    """Count the ones of 32-bit integers: pairs, fours and bytes of bits are added up in place."""
    bits = unsigned(g, x)

    def field(part: Tensor, shift: int, mask: int) -> Tensor:
        moved = emit.arithmetic(g, "shift_right", part, shift) if shift else part
        return emit.arithmetic(g, "bit_and", moved, mask)

    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        bits = emit.arithmetic(g, "add", field(bits, 0, mask), field(bits, shift, mask))
    total = emit.arithmetic(g, "mul", bits, 0x01010101)
    return emit.cast(g, field(total, 24, 0xFF), x.dtype)


def read_as(g: Builder, x: Tensor, target: DType) -> Tensor | None:
    """Read the bits of an f32 as an i32, or back; None for other types."""
    if (x.dtype, target) == (F32, I32):
        return emit.unary("float_bits")(g, x)
    if (x.dtype, target) == (I32, F32):
        return emit.unary("bits_float")(g, x)
    return None


def in_total_order(g: Builder, x: Tensor) -> Tensor:
    """Return integers that are ordered as floats are by sign, then by size; NaN is the largest."""
    bits = emit.unary("float_bits")(g, x)
    turned = emit.arithmetic(g, "add", inverted(g, bits), -(1 << 31))
    return emit.elementwise(g, "where", emit.arithmetic(g, "lt", bits, 0), turned, bits)
