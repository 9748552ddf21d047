"""Types of matmul and convolutions: operands and accumulators.

Operands are f32 or i8; the attr `zeros` is subtracted first. Products of two i8 operands are summed
exactly in i32; others in f32, with i8 converted to f32.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.types import F32, I32, DType
from pockengine.compiler.ops.registry import Arrays, Types
from pockengine.errors import GraphError

PRODUCT = {"zeros": (0, 0)}
"""The attr of every product."""

STORAGE = frozenset({DType.I8})
"""Types, besides f32, that products multiply."""


def product_dtype(op: str, types: Types, attrs: Mapping[str, Any]) -> DType:
    """Return the result's dtype; GraphError for unsupported operands."""
    for type_, zero in zip(types, attrs["zeros"], strict=True):
        if type_.dtype is not F32 and type_.dtype not in STORAGE:
            raise GraphError(f"{op} multiplies f32 and i8, not {type_}; cast it first")
        if zero and (type_.dtype is F32 or not -128 <= zero <= 127):
            raise GraphError(f"{op}: {type_} has no zero point {zero}")
    return I32 if all(type_.dtype is DType.I8 for type_ in types) else F32


def without_zeros(arrays: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    """Subtract the zero points, if any."""
    return tuple(
        array.astype(np.int32) - zero if zero else array
        for array, zero in zip(arrays, attrs["zeros"], strict=True)
    )


def summed(sums: np.ndarray, operands: Arrays) -> np.ndarray:
    """Round sums in double precision to the result's type."""
    integers = all(array.dtype == np.int8 for array in operands)
    return sums.astype(np.int32 if integers else np.float32)
