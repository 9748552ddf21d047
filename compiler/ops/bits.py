"""Bitwise ops on integers, and floats reinterpreted as integers.

    bit_and, bit_or, bit_xor   of two integers
    shift_left, shift_right    by b bits: zeros come in, or the sign; a b outside the width
                               shifts everything out
    float_bits, bits_float     the 32 bits of an f32 as an i32, and back

None has a gradient.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.types import F32, I32, DType, TensorType
from pockengine.compiler.ops.elementwise import elementwise, integers
from pockengine.compiler.ops.registry import Types
from pockengine.errors import GraphError

Attrs = Mapping[str, Any]


def _left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Shift left as XLA does: an amount outside the width gives 0."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    shifted: np.ndarray = np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0)
    return shifted


def _right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Shift right, arithmetic for signed types."""
    width = a.dtype.itemsize * 8
    shifted: np.ndarray = np.right_shift(a, np.where((b >= 0) & (b < width), b, width - 1))
    return shifted


def _reading(source: DType, target: DType) -> Any:
    def infer(types: Types, attrs: Attrs) -> Types:
        if types[0].dtype is not source:
            raise GraphError(f"operand {types[0]} must be {source.value}; cast it")
        return (TensorType(target, types[0].shape),)

    return infer


def _bits(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(np.int32).reshape(a.shape)


def _float(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(np.float32).reshape(a.shape)


elementwise("bit_and", "a b", np.bitwise_and, infer=integers)
elementwise("bit_or", "a b", np.bitwise_or, infer=integers)
elementwise("bit_xor", "a b", np.bitwise_xor, infer=integers)
elementwise("shift_left", "a b", _left, infer=integers)
elementwise("shift_right", "a b", _right, infer=integers)
elementwise("float_bits", "x", _bits, infer=_reading(F32, I32))
elementwise("bits_float", "x", _float, infer=_reading(I32, F32))
