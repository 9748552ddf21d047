"""ONNX operators of neural nets: products and normalization."""

from collections.abc import Mapping
from typing import Any

from pockengine.frontends import emit
from pockengine.frontends.emit import matrices as emit_matrices
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import norm as emit_norm
from pockengine.frontends.emit.einsum import einsum as emit_einsum
from pockengine.frontends.emit.nn import NormParams, Unsupported
from pockengine.frontends.layout import (
    IN_OUT,
    Layout,
    Tensor,
    permute,
    reshape,
)
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op


@onnx_op("MatMul")
def matmul(ctx: OnnxContext, a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices, vectors or batches of matrices."""
    return emit.matmul(ctx.g, a, b)


@onnx_op("Det")
def det(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Return the determinant of each matrix."""
    return emit_matrices.det(ctx.g, x)


@onnx_op("Einsum")
def einsum(ctx: OnnxContext, *operands: Tensor, equation: str) -> Tensor:
    """Sum products over the letters that the result lacks."""
    return emit_einsum(ctx.g, equation, operands)


def _gemm_wish(rank: int, attributes: Mapping[str, Any]) -> Layout | None:
    return IN_OUT if attributes.get("transB") else None


@onnx_op("Gemm", wish=_gemm_wish)
def gemm(
    ctx: OnnxContext,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Alpha a b + beta c, each of a and b transposed on request."""
    left = permute(a, (1, 0)) if transA else a
    weight = b if transB else permute(b, (1, 0))
    y = emit.weighted(ctx.g, emit_nn.linear(ctx.g, left, weight, None), alpha)
    return y if c is None else emit.arithmetic(ctx.g, "add", y, emit.weighted(ctx.g, c, beta))


@onnx_op("BatchNormalization", states=(3, 4))
def batch_normalization(
    ctx: OnnxContext,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> list[Tensor]:
    """Normalize by the running statistics; by the batch's own ones when training.

    ONNX weighs the old statistics by `momentum` and takes the biased variance. A model exported for
    inference but imported in training mode gets PyTorch's unbiased running variance instead.
    """
    norm = NormParams(gamma, beta, mean, var=var, eps=epsilon)
    if training_mode:
        return _batch_norm_training(ctx, x, norm, momentum)
    if any(ctx.requested[1:]):
        raise Unsupported("training mode before opset 14; convert the model to a newer opset")
    if not ctx.training:
        return [emit_nn.batch_norm_frozen(ctx.g, x, norm)]
    if not _is_state(ctx, mean) or not _is_state(ctx, var):
        raise Unsupported("running statistics that are no initializers cannot be updated")
    return [emit_nn.batch_norm_training(ctx.g, x, norm, 1 - momentum)]


def _batch_norm_training(
    ctx: OnnxContext, x: Tensor, norm: NormParams, momentum: float
) -> list[Tensor]:
    g = ctx.g
    bare = NormParams(norm.gamma, norm.beta, None, var=None, eps=norm.eps)
    y = emit_nn.batch_norm_training(g, x, bare, 1 - momentum)
    assert y.value.node is not None  # it has just been made
    batch = y.value.node.results[1:]
    results = [y]
    for index, (old, new) in enumerate(zip((norm.mean, norm.var), batch, strict=True), start=1):
        assert old is not None  # both are required by the standard
        if ctx.wants(index):
            decayed = emit.weighted(g, old, momentum)
            moved = emit.weighted(g, Tensor(new, (0,)), 1 - momentum)
            results.append(emit.arithmetic(g, "add", decayed, moved))
        elif _is_state(ctx, old):
            g.emit("ema_update", old.value, new, momentum=1 - momentum)
    return results


def _is_state(ctx: OnnxContext, x: Tensor) -> bool:
    param = ctx.g.graph.param_of(x.value)
    return param is not None and not param.trainable


@onnx_op("LayerNormalization")
def layer_normalization(
    ctx: OnnxContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Tensor]:
    """Normalize the dimensions from `axis` on to mean 0 and variance 1; scale and shift.

    On request, also return the mean and the inverse of the standard deviation.
    """
    y = emit_norm.layer_norm(ctx.g, x, x.rank - axis % x.rank, scale=scale, shift=bias, eps=epsilon)
    if not any(ctx.requested[1:]):
        return [y]
    g, dims = ctx.g, range(axis % x.rank, x.rank)
    mean = emit.reduce(g, "reduce_mean", x, dims, keepdims=True)
    squares = emit.unary("square")(g, emit.arithmetic(g, "sub", x, mean))
    var = emit.reduce(g, "reduce_mean", squares, dims, keepdims=True)
    return [y, mean, emit.unary("rsqrt")(g, emit.arithmetic(g, "add", var, epsilon))]


@onnx_op("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(
    ctx: OnnxContext,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Normalize the dimensions from `axis` on to a mean square of 1; scale.

    ONNX Runtime writes the second name, into the standard's domain.
    """
    return emit_norm.rms_norm(ctx.g, x, x.rank - axis % x.rank, scale=scale, eps=epsilon)


@onnx_op("InstanceNormalization")
def instance_normalization(
    ctx: OnnxContext, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """Normalize each channel of each sample; scale and shift each channel."""
    return emit_norm.group_norm(ctx.g, x, x.shape[1], scale=scale, shift=bias, eps=epsilon)


@onnx_op("GroupNormalization")
def group_normalization(
    ctx: OnnxContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Normalize each group of channels; scale and shift each channel."""
    if ctx.opset < 21:  # scale and shift were given for each group
        channels = x.shape[1] // num_groups
        scale, bias = (
            reshape(
                ctx.g,
                emit.broadcast(
                    ctx.g, reshape(ctx.g, part, (num_groups, 1)), (num_groups, channels)
                ),
                (x.shape[1],),
            )
            for part in (scale, bias)
        )
    return emit_norm.group_norm(ctx.g, x, num_groups, scale=scale, shift=bias, eps=epsilon)
