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


def _normal(ctx: OnnxContext, shape: Shape, dtype: int, mean: float, scale: float) -> Tensor:
    _check_float(dtype)
    drawn = emit_random.normal(ctx.g, shape)
    return emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, drawn, scale), mean)


def _uniform(ctx: OnnxContext, shape: Shape, dtype: int, low: float, high: float) -> Tensor:
    _check_float(dtype)
    drawn = emit_random.uniform(ctx.g, shape)
    return emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, drawn, high - low), low)


def _check_float(dtype: int) -> None:
    if dtype_named(dtype) is not F32:
        raise Unsupported("random numbers that are no floats")


@onnx_op("RandomNormal")
def random_normal(
    ctx: OnnxContext,
    *,
    shape: list[int],
    dtype: int = FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw normal numbers, others at every step."""
    return _normal(ctx, tuple(shape), dtype, mean, scale)


@onnx_op("RandomNormalLike")
def random_normal_like(
    ctx: OnnxContext,
    x: Tensor,
    *,
    dtype: int = FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw normal numbers of the shape of x, others at every step."""
    return _normal(ctx, x.shape, dtype, mean, scale)


@onnx_op("RandomUniform")
def random_uniform(
    ctx: OnnxContext,
    *,
    shape: list[int],
    dtype: int = FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw evenly distributed numbers, others at every step."""
    return _uniform(ctx, tuple(shape), dtype, low, high)


@onnx_op("RandomUniformLike")
def random_uniform_like(
    ctx: OnnxContext,
    x: Tensor,
    *,
    dtype: int = FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float = 0.0,
) -> Tensor:
    """Draw evenly distributed numbers of the shape of x, others at every step."""
    return _uniform(ctx, x.shape, dtype, low, high)


@onnx_op("Bernoulli")
def bernoulli(
    ctx: OnnxContext, x: Tensor, *, dtype: int | None = None, seed: float = 0.0
) -> Tensor:
    """Draw 1 with the chance that x says, else 0."""
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
    """Shift the bits, zeros coming in: the standard has it of unsigned integers alone."""
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
