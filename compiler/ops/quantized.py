"""Quantize, dequantize, and arithmetic on quantized integers.

    quantize    x scale           -> clamp(round(x / scale), low - zero, high - zero) + zero
    dequantize  q scale           -> (q - zero) scale
    rescale     x multiplier exponent -> x multiplier 2^(exponent - 31), i32, rounded as below
    narrow      x                 -> clamp(x, low - zero, high - zero) + zero
    unclamped   q                 -> low < q < high

`quantize` divides in f32 and rounds halves to even; NaN becomes 0. `rescale` is TensorFlow Lite's
reference arithmetic: the product's high half with halves rounded up, then a division by a power of
two with halves rounded away from zero. With `once` the exact product is rounded, halves up; two
steps differ from that by one if the first rounds to a half. `down` states that every exponent is
negative, which targets may use. Scales, multipliers and exponents are operands that broadcast: one
for all or one per channel.

The cotangent of integers is that of the real numbers they represent: `dequantize` passes it
through, `quantize` does so where it did not clamp (straight-through estimator).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.scalars import converted
from pockengine.compiler.ir.types import BOOL, F32, I32, DType, TensorType
from pockengine.compiler.ops.elementwise import broadcast_shape, elementwise
from pockengine.compiler.ops.registry import Types
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
I8 = DType.I8
LIMITS = {"zero": 0, "low": -128, "high": 127}


def _quantize_type(types: Types, attrs: Attrs) -> Types:
    x, scale = types
    dtype = DType(attrs["dtype"])
    if x.dtype is not F32 or scale.dtype is not F32 or dtype not in (I8, I32):
        raise GraphError(f"quantize makes i8 or i32 of f32 numbers and scales, not of {x}, {scale}")
    _check_limits(dtype, attrs)
    return (TensorType(dtype, _like(x, scale)),)


def _check_limits(dtype: DType, attrs: Attrs) -> None:
    limits, (low, high) = np.iinfo(str(dtype.numpy)), (attrs["low"], attrs["high"])
    if not limits.min <= low <= attrs["zero"] <= high <= limits.max:
        raise GraphError(f"{dtype.value} has no numbers {low} to {high} around {attrs['zero']}")


def _dequantize_type(types: Types, attrs: Attrs) -> Types:
    q, scale = types
    if q.dtype not in (I8, I32) or scale.dtype is not F32:
        raise GraphError(f"dequantize takes i8 or i32 and f32 scales, not {q} and {scale}")
    return (TensorType(F32, _like(q, scale)),)


def _rescale_type(types: Types, _: Attrs) -> Types:
    if any(type_.dtype is not I32 for type_ in types):
        raise GraphError(f"rescale takes i32 operands, not {', '.join(map(str, types))}")
    return (TensorType(I32, _like(*types)),)


def _narrow_type(types: Types, attrs: Attrs) -> Types:
    if types[0].dtype is not I32:
        raise GraphError(f"narrow takes i32, not {types[0]}")
    _check_limits(I8, attrs)
    return (TensorType(I8, types[0].shape),)


def _unclamped_type(types: Types, _: Attrs) -> Types:
    if types[0].dtype is not I8:
        raise GraphError(f"unclamped takes i8, not {types[0]}")
    return (TensorType(BOOL, types[0].shape),)


def _like(first: TensorType, *others: TensorType) -> tuple[int, ...]:
    """Return the first operand's shape, to which the others must broadcast."""
    shape = broadcast_shape(first.shape, *(other.shape for other in others))
    if shape != first.shape:
        raise GraphError(f"{', '.join(map(str, others))} would broadcast {first}, not the reverse")
    return shape


def _quantize(
    x: np.ndarray, scale: np.ndarray, zero: int, low: int, high: int, dtype: str
) -> np.ndarray:
    rounded = converted(np.rint(x / scale), I32)
    clamped = np.clip(rounded, low - zero, high - zero) + zero
    return np.asarray(clamped, DType(dtype).numpy)


def _dequantize(q: np.ndarray, scale: np.ndarray, zero: int) -> np.ndarray:
    return np.asarray((q.astype(np.int32) - np.int32(zero)).astype(np.float32) * scale)


def rescaled(
    x: np.ndarray,
    multiplier: np.ndarray,
    exponent: np.ndarray,
    down: bool = False,
    once: bool = False,
) -> np.ndarray:
    """Multiply i32 by multiplier 2^(exponent - 31), rounded as the module docstring says."""
    if down and np.any(exponent >= 0):
        raise GraphError("rescale goes down only by negative exponents")
    shifted = np.left_shift(x, np.maximum(exponent, 0)).astype(np.int32)
    product, right = shifted.astype(np.int64) * multiplier, np.maximum(-exponent.astype("i8"), 0)
    if once:
        half = np.int64(1) << (30 + right)
        return np.asarray((product + half) >> (31 + right)).astype(np.int32)
    high = (product + (1 << 30)) >> 31
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + ((high & mask) > threshold)).astype(np.int32)


def _narrow(x: np.ndarray, zero: int, low: int, high: int) -> np.ndarray:
    return np.asarray(np.clip(x, low - zero, high - zero) + zero)


def fixed_point(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return i32 multipliers and exponents of `rescale` for these factors.

    GraphError for a factor that is not a positive number below 2^30.
    """
    factors = np.asarray(factors, np.float64)
    if not (np.isfinite(factors).all() and (factors > 0).all() and (factors < 1 << 30).all()):
        raise GraphError("factors of rescale must be positive, finite and below 2^30")
    mantissa, exponent = np.frexp(factors)
    multiplier = np.floor(mantissa * (1 << 31) + 0.5).astype(np.int64)
    exponent = exponent + (multiplier == 1 << 31)
    multiplier = np.where(multiplier == 1 << 31, 1 << 30, multiplier)
    small = exponent < -31
    return (
        np.where(small, 0, multiplier).astype(np.int32),
        np.where(small, 0, exponent).astype(np.int32),
    )


def _quantize_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Pass dy through where the number was not clamped."""
    limits = {name: node.attrs[name] for name in ("low", "high")}
    return g.where(g.unclamped(node.result, **limits), dy, g.scalar(0.0))


elementwise(
    "quantize",
    "x scale",
    _quantize,
    infer=_quantize_type,
    attrs={**LIMITS, "dtype": "i8"},
    vjp={"x": _quantize_dx},
    converts=True,
)
elementwise(
    "dequantize",
    "q scale",
    _dequantize,
    infer=_dequantize_type,
    attrs={"zero": 0},
    vjp={"q": lambda g, node, dy: dy},
    storage=frozenset({I8}),
    converts=True,
)
elementwise(
    "rescale",
    "x multiplier exponent",
    rescaled,
    infer=_rescale_type,
    attrs={"down": False, "once": False},
    small=(2,),
    converts=True,
)
elementwise("narrow", "x", _narrow, infer=_narrow_type, attrs=LIMITS, converts=True)
elementwise(
    "unclamped",
    "q",
    lambda q, low, high: (q > low) & (q < high),
    infer=_unclamped_type,
    attrs={"low": -128, "high": 127},
    storage=frozenset({I8}),
)
