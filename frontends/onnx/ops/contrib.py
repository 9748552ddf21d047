"""Operators of ONNX Runtime's own domain, which its optimizer and optimum emit."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import norm as emit_norm
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, permute, plain
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

RUNTIME_DOMAIN = "com.microsoft"
runtime_op = partial(onnx_op, domain=RUNTIME_DOMAIN)
SCALE_OF_QUICK_GELU = 1.702


def _sum(ctx: OnnxContext, *parts: Tensor | None) -> Tensor:
    """Add the operands that are not None."""
    first, *others = (part for part in parts if part is not None)
    for other in others:
        first = emit.elementwise(ctx.g, "add", first, other)
    return first


def _with_sum(ctx: OnnxContext, y: Tensor, total: Tensor) -> list[Tensor | None]:
    """Return the result and, on request, the sum that was normalized."""
    if ctx.wants(1) or ctx.wants(2):
        raise Unsupported("mean and deviation as results")
    return [y, None, None, total] if ctx.wants(3) else [y]


@runtime_op("SkipLayerNormalization")
def skip_layer_normalization(
    ctx: OnnxContext,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> Sequence[Tensor | None]:
    """Add, and normalize the last dimension."""
    total = _sum(ctx, x, skip, bias)
    return _with_sum(
        ctx, emit_norm.layer_norm(ctx.g, total, 1, scale=scale, shift=shift, eps=epsilon), total
    )


@runtime_op("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    ctx: OnnxContext,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> Sequence[Tensor | None]:
    """Add, and bring the last dimension to a mean square of 1."""
    total = _sum(ctx, x, skip, bias)
    return _with_sum(ctx, emit_norm.rms_norm(ctx.g, total, 1, scale=scale, eps=epsilon), total)


@runtime_op("BiasGelu", "Gelu")
def gelu(ctx: OnnxContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by the error function, of a sum."""
    return emitter("gelu")(ctx.g, _sum(ctx, x, bias), approximate="none")


@runtime_op("FastGelu")
def fast_gelu(ctx: OnnxContext, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by the hyperbolic tangent, of a sum."""
    return emitter("gelu")(ctx.g, _sum(ctx, x, bias), approximate="tanh")


@runtime_op("QuickGelu")
def quick_gelu(ctx: OnnxContext, x: Tensor, *, alpha: float = SCALE_OF_QUICK_GELU) -> Tensor:
    """Multiply x by the sigmoid of alpha x."""
    return emitter("silu")(ctx.g, x, beta=alpha)


@runtime_op("FusedMatMul")
def fused_matmul(
    ctx: OnnxContext,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """Multiply two matrices, possibly transposed, and alpha."""
    if transBatchA or transBatchB:
        raise Unsupported("matrices whose batches are transposed")
    a, b = (_turned(x) if turned else x for x, turned in ((a, transA), (b, transB)))
    return emit.weighted(ctx.g, emit.matmul(ctx.g, a, b), alpha)


def _turned(x: Tensor) -> Tensor:
    """Transpose matrices; a vector stays."""
    if x.rank < 2:
        return x
    return permute(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


@runtime_op("MatMulNBits", static=(1, 2, 3))
def matmul_of_bits(
    ctx: OnnxContext,
    x: Tensor,
    packed: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
) -> Tensor:
    """Multiply by a frozen matrix of 4 bits, whose blocks have a scale each."""
    blocks = -(-K // block_size)
    if bits != 4 or packed.dtype != np.uint8 or (zeros is not None and zeros.dtype != np.uint8):
        raise Unsupported(f"weights of {bits} bits; use 4, packed as bytes with their zero points")
    numbers = _nibbles(packed.reshape(N, blocks, -1)).astype(np.float32)
    middle: np.ndarray = np.full((N, blocks), 8, np.float32)
    if zeros is not None:
        middle = _nibbles(zeros.reshape(N, -1))[:, :blocks].astype(np.float32)
    factors = scales.astype(np.float32).reshape(N, blocks, 1)
    weight = ((numbers - middle[..., None]) * factors).reshape(N, -1)[:, :K]
    return emit.matmul(ctx.g, x, plain(ctx.g.constant(np.array(weight.T, order="C"))))


def _nibbles(array: np.ndarray) -> np.ndarray:
    """Return the halves of bytes along the last dimension, the lower one first."""
    pairs = np.stack([array & 15, array >> 4], axis=-1)
    return pairs.reshape(*array.shape[:-1], -1)
