"""ONNX operators that draw numbers, or work on the bits of integers.

Numbers are drawn from the input `seed` of the step: an operator's own seed is ignored.
"""

import numpy as np

from pockengine.compiler.ir import F32, I32, I64, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit import bits
from pockengine.frontends.emit import random as emit_random
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.declared import dtype_named
from pockengine.frontends.onnx.ops.registry import OnnxContext, Result, onnx_op

FLOAT = 1
"""ONNX's code of float32."""


@onnx_op("RandomNormal", "RandomNormalLike")
def random_normal(
    ctx: OnnxContext,
    x: Tensor | None = None,
    *,
    shape: list[int] | None = None,
    dtype: int = FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw normal numbers of a shape or of x's shape, different in every step."""
    drawn = emit_random.normal(ctx.g, _drawn_shape(x, shape, dtype))
    return emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, drawn, scale), mean)


@onnx_op("RandomUniform", "RandomUniformLike")
def random_uniform(
    ctx: OnnxContext,
    x: Tensor | None = None,
    *,
    shape: list[int] | None = None,
    dtype: int = FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw uniform numbers of a shape or of x's shape, different in every step."""
    drawn = emit_random.uniform(ctx.g, _drawn_shape(x, shape, dtype))
    return emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, drawn, high - low), low)


def _drawn_shape(x: Tensor | None, shape: list[int] | None, dtype: int) -> Shape:
    if dtype_named(dtype) is not F32:
        raise Unsupported("random numbers that are no floats")
    if x is None and shape is None:
        raise Unsupported("random numbers of no shape")
    return tuple(shape or ()) if x is None else x.shape


@onnx_op("Bernoulli")
def bernoulli(
    ctx: OnnxContext, x: Tensor, *, dtype: int | None = None, seed: float = 0.0
) -> Tensor:
    """Draw 1 with probability x, else 0."""
    drawn = emit_random.bernoulli(ctx.g, x.shape, x)
    return drawn if dtype is None else emit.cast(ctx.g, drawn, dtype_named(dtype))


def _define_bitwise(name: str, op: str) -> None:
    @onnx_op(name)
    def rule(ctx: OnnxContext, a: Tensor, b: Tensor) -> Tensor:
        _check_bits(a)
        return emit.elementwise(ctx.g, op, a, b)


for _name in ("And", "Or", "Xor"):
    _define_bitwise(f"Bitwise{_name}", f"bit_{_name.lower()}")


@onnx_op("BitShift")
def bit_shift(ctx: OnnxContext, x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    """Shift the bits, filling with zeros; the standard defines it for unsigned integers only."""
    _check_bits(x)
    return emit.elementwise(ctx.g, f"shift_{direction.lower()}", x, by)


@onnx_op("BitwiseNot")
def bitwise_not(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Turn each bit."""
    _check_bits(x)
    return bits.inverted(ctx.g, x)


def _check_bits(x: Tensor) -> None:
    if x.dtype not in (I32, I64):
        raise Unsupported(f"the bits of {x.dtype.value}; use int32 or int64")


@onnx_op("EyeLike")
def eye_like(ctx: OnnxContext, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Result:
    """Ones along a diagonal, in the shape of x."""
    rows, columns = x.shape
    form = (x.dtype if dtype is None else dtype_named(dtype)).numpy
    return np.eye(rows, columns, k=k).astype(form)
