"""ONNX operators of neural nets: products, convolution, pooling, normalisation."""

from collections.abc import Mapping, Sequence
from typing import Any

from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import norm as emit_norm
from pockengine.frontends.emit.einsum import einsum as emit_einsum
from pockengine.frontends.emit.nn import NormParams, Unsupported, Window
from pockengine.frontends.layout import (
    HWIO,
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
    """Alpha a b + beta c, each of a and b transposed where asked."""
    left = permute(a, (1, 0)) if transA else a
    weight = b if transB else permute(b, (1, 0))
    y = emit.weighted(ctx.g, emit_nn.linear(ctx.g, left, weight, None), alpha)
    return y if c is None else emit.arithmetic(ctx.g, "add", y, emit.weighted(ctx.g, c, beta))


def _conv_wish(rank: int, attributes: Mapping[str, Any]) -> Layout | None:
    return {3: (2, 1, 0), 4: HWIO}.get(rank)


def window_of(
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
) -> Window:
    """Say how a kernel slides over (N, C, L) or (N, C, H, W); a line is a picture of height 1."""
    rank = x.rank - 2
    if rank not in (1, 2) or len(kernel) != rank:
        raise Unsupported(f"windows of {list(kernel)} over {list(x.shape)}; use one or two dims")
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    before, after = list(pads or [0] * 2 * rank)[:rank], list(pads or [0] * 2 * rank)[rank:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for i, size in enumerate(x.shape[2:]):
            reach = gaps[i] * (kernel[i] - 1) + 1
            whole = max((-(-size // steps[i]) - 1) * steps[i] + reach - size, 0)
            small, large = whole // 2, whole - whole // 2
            before[i], after[i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    if rank == 1:
        return Window((1, kernel[0]), (1, steps[0]), (0, 0, before[0], after[0]), (1, gaps[0]))
    sides = (before[0], after[0], before[1], after[1])
    return Window((kernel[0], kernel[1]), (steps[0], steps[1]), sides, (gaps[0], gaps[1]))


def _picture(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Make a picture of height 1 of a line."""
    return x if x.rank == 4 else reshape(ctx.g, x, (*x.shape[:2], 1, x.shape[2]))


def _as_given(ctx: OnnxContext, x: Tensor, y: Tensor) -> Tensor:
    """Make a line of the picture again if `x` is one."""
    return y if x.rank == 4 else reshape(ctx.g, y, (*y.shape[:2], y.shape[3]))


@onnx_op("Conv", wish=_conv_wish)
def conv(
    ctx: OnnxContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolve in one or two dimensions."""
    if kernel_shape is not None and tuple(kernel_shape) != weight.shape[2:]:
        raise Unsupported(f"kernel_shape {kernel_shape} with a weight of {list(weight.shape)}")
    window = window_of(x, weight.shape[2:], strides, pads, dilations, auto_pad)
    kernel = _picture(ctx, weight)
    return _as_given(ctx, x, emit_nn.conv2d(ctx.g, _picture(ctx, x), kernel, bias, window, group))


@onnx_op("MaxPool")
def max_pool(
    ctx: OnnxContext,
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Tensor:
    """Take each window's maximum."""
    if ctx.wants(1):
        raise Unsupported("the places of max pooling's maxima; leave the second output out")
    window = window_of(x, kernel_shape, strides, pads, dilations, auto_pad)
    picture = _picture(ctx, x)
    if ceil_mode:
        window = window.ceiled((picture.shape[2], picture.shape[3]))
    return _as_given(ctx, x, emit_nn.max_pool2d(ctx.g, picture, window))


@onnx_op("AveragePool")
def average_pool(
    ctx: OnnxContext,
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Average each window."""
    window = window_of(x, kernel_shape, strides, pads, dilations, auto_pad)
    if window.dilation != (1, 1):
        raise Unsupported("average pooling with dilations")
    picture = _picture(ctx, x)
    ceiled = window.ceiled((picture.shape[2], picture.shape[3])) if ceil_mode else window
    if ceiled != window and count_include_pad:
        if any(window.padding):
            raise Unsupported("average pooling with ceil_mode and counted padding; drop one")
        count_include_pad = 0
    return _as_given(ctx, x, emit_nn.avg_pool2d(ctx.g, picture, ceiled, bool(count_include_pad)))


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
    """Normalise by the running statistics; by the batch's own ones when training.

    ONNX weighs the old statistics by `momentum` and takes the biased variance. A model exported for
    inference but imported in training mode gets PyTorch's unbiased running variance instead.
    """
    norm = NormParams(gamma, beta, mean, var, epsilon)
    if training_mode:
        return _batch_norm_training(ctx, x, norm, momentum)
    if any(ctx.wanted[1:]):
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
    bare = NormParams(norm.gamma, norm.beta, None, None, norm.eps)
    y = emit_nn.batch_norm_training(g, x, bare, 1 - momentum)
    assert y.value.node is not None  # it has just been made
    batch = y.value.node.results[1:]
    results = [y]
    for index, (old, new) in enumerate(zip((norm.mean, norm.var), batch, strict=True), start=1):
        assert old is not None  # both are required by the standard
        if ctx.wants(index):
            kept = emit.weighted(g, old, momentum)
            moved = emit.weighted(g, Tensor(new, (0,)), 1 - momentum)
            results.append(emit.arithmetic(g, "add", kept, moved))
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
    """Normalise the dimensions from `axis` on to mean 0 and variance 1; scale and shift.

    Where asked, also give the mean and the inverse of the deviation.
    """
    y = emit_norm.layer_norm(ctx.g, x, x.rank - axis % x.rank, scale, bias, epsilon)
    if not any(ctx.wanted[1:]):
        return [y]
    g, dims = ctx.g, range(axis % x.rank, x.rank)
    mean = emit.reduce(g, "reduce_mean", x, dims, keepdims=True)
    squares = emit.unary("square")(g, emit.arithmetic(g, "sub", x, mean))
    var = emit.reduce(g, "reduce_mean", squares, dims, keepdims=True)
    return [y, mean, emit.unary("rsqrt")(g, emit.arithmetic(g, "add", var, epsilon))]


@onnx_op("RMSNormalization")
def rms_normalization(
    ctx: OnnxContext,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Normalise the dimensions from `axis` on to a mean square of 1; scale."""
    return emit_norm.rms_norm(ctx.g, x, x.rank - axis % x.rank, scale, epsilon)


@onnx_op("InstanceNormalization")
def instance_normalization(
    ctx: OnnxContext, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """Normalise each channel of each sample; scale and shift each channel."""
    return emit_norm.group_norm(ctx.g, x, x.shape[1], scale, bias, epsilon)


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
    """Normalise each group of channels; scale and shift each channel."""
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
    return emit_norm.group_norm(ctx.g, x, num_groups, scale, bias, epsilon)
