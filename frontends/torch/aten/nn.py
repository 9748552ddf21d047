"""ATen operators of neural nets: convolution, linear, normalization, pooling, softmax."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.nn import NormParams, Window
from pockengine.frontends.emit.places import max_places, unpooled
from pockengine.frontends.layout import HWIO, IN_OUT, Tensor, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, Missing, aten
from pockengine.frontends.torch.aten.windows import (
    as_pictures,
    batched,
    conv_window,
    max_window,
    pool_window,
)


@aten("conv2d.default", "conv2d.padding", weight=HWIO)
def conv2d(
    ctx: AtenContext, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, **sizes: Any
) -> Tensor:
    """Convolve in two dimensions; padding is sizes, "same" or "valid"."""
    window = conv_window(weight.shape[2:], **sizes)
    y = emit_nn.conv2d(ctx.g, batched(ctx, x, 2), weight, bias=bias, window=window, groups=groups)
    return reshape(ctx.g, y, ctx.shape)


@aten("linear.default", weight=IN_OUT)
def linear(ctx: AtenContext, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x weightᵀ + bias over the last dimension."""
    return emit_nn.linear(ctx.g, x, weight, bias)


@aten("matmul.default")
def matmul(ctx: AtenContext, x: Tensor, other: Tensor) -> Tensor:
    """Multiply matrices, vectors or batches of matrices."""
    return emit.matmul(ctx.g, x, other)


@aten("mm.default", "bmm.default")
def mm(ctx: AtenContext, x: Tensor, mat2: Tensor) -> Tensor:
    """Multiply matrices or batches of matrices."""
    return emit.matmul(ctx.g, x, mat2)


@aten("addmm.default")
def addmm(
    ctx: AtenContext, x: Tensor, mat1: Tensor, mat2: Tensor, beta: Number, alpha: Number
) -> Tensor:
    """beta x + alpha mat1 mat2."""
    product = emit.weighted(ctx.g, emit.matmul(ctx.g, mat1, mat2), alpha)
    return emit.arithmetic(ctx.g, "add", product, emit.weighted(ctx.g, x, beta))


@aten("addbmm.default")
def addbmm(
    ctx: AtenContext, x: Tensor, batch1: Tensor, batch2: Tensor, beta: Number, alpha: Number
) -> Tensor:
    """beta x + alpha times the sum of all products of a batch."""
    product = emit.reduce(
        ctx.g, "reduce_sum", emit.matmul(ctx.g, batch1, batch2), [0], keepdims=False
    )
    weighted = emit.weighted(ctx.g, product, alpha)
    return emit.arithmetic(ctx.g, "add", weighted, emit.weighted(ctx.g, x, beta))


@aten("batch_norm.default")
def batch_norm(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize by the batch's statistics, or in evaluation mode by the running ones."""
    norm = NormParams(weight, bias, running_mean, var=running_var, eps=eps)
    if training:
        return emit_nn.batch_norm_training(ctx.g, x, norm, momentum)
    return emit_nn.batch_norm_frozen(ctx.g, x, norm)


@aten("pockengine.cumulative_batch_norm.default")
def cumulative_batch_norm(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    count: Tensor,
    eps: float,
) -> Tensor:
    """Normalize by the batch's statistics, and average those of all `count` batches."""
    share = emit.unary("reciprocal")(ctx.g, emit.cast(ctx.g, count, F32))
    return emit_nn.batch_norm_training(
        ctx.g, x, NormParams(weight, bias, mean, var=var, eps=eps), share
    )


def define_max_pools(rank: int, pool: Callable[[Builder, Tensor, Window], Tensor]) -> None:
    """Define the rules of maxima over windows of `rank` dimensions."""

    @aten(f"max_pool{rank}d.default")
    def max_pool(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
        """Take each window's maximum."""
        y = pool(ctx.g, batched(ctx, x, rank), max_window(x, rank, **window))
        return reshape(ctx.g, y, ctx.shape)

    @aten(f"max_pool{rank}d_with_indices.default")
    def max_pool_with_indices(ctx: AtenContext, x: Tensor, **window: Any) -> list[Tensor]:
        """Take each window's maximum, and its place in the channel."""
        places = max_places(ctx.g, batched(ctx, x, rank), max_window(x, rank, **window))
        return [max_pool(ctx, x, **window), reshape(ctx.g, places, ctx.shape)]

    @aten(f"max_unpool{rank}d.default")
    def max_unpool(ctx: AtenContext, x: Tensor, indices: Tensor, **_: Any) -> Tensor:
        """Write maxima to their original places, and zeros elsewhere."""
        whole, places = (batched(ctx, part, rank) for part in (x, indices))
        return reshape(ctx.g, unpooled(ctx.g, whole, places, ctx.shape[-rank:]), ctx.shape)


define_max_pools(2, emit_nn.max_pool2d)


@aten("avg_pool2d.default")
def avg_pool2d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Average each window."""
    return average(ctx, emit_nn.avg_pool2d, x, rank=2, **window)


def average(
    ctx: AtenContext,
    pool: Callable[[Builder, Tensor, Window, bool], Tensor],
    x: Tensor,
    *,
    rank: int,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    **sizes: Sequence[int],
) -> Tensor:
    """Average each window of (N, C, ...) or (C, ...); `pool` takes a flag whether padding
    counts."""
    window, batch = pool_window(rank=rank, **sizes), batched(ctx, x, rank)
    ceiled = window.ceiled(batch.shape[2:]) if ceil_mode else window
    if divisor_override is not None:
        share = math.prod(window.kernel) / divisor_override
        y = emit.weighted(ctx.g, pool(ctx.g, batch, ceiled, True), share)
    else:
        y = pool(ctx.g, batch, ceiled, count_include_pad)
        if ceiled != window and count_include_pad:
            y = _rescaled(ctx.g, y, batch, window)
    return reshape(ctx.g, y, ctx.shape)


def _rescaled(g: Builder, y: Tensor, x: Tensor, window: Window) -> Tensor:
    """Count the requested padding, not that of the last, incomplete window."""
    shares = np.ones((), np.float64)
    for dim, (size, kernel, step) in enumerate(
        zip(x.shape[2:], window.kernel, window.stride, strict=True)
    ):
        end = size + sum(window.padding[2 * dim : 2 * dim + 2])
        first = np.arange(y.shape[2 + dim]) * step
        shares = shares[..., None] * (kernel / (np.minimum(first + kernel, end) - first))
    return emit.arithmetic(g, "mul", y, plain(g.constant(shares.astype(np.float32))))


@aten("adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(ctx: AtenContext, x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average down to a given height and width."""
    height, width = ctx.shape[-2:]
    y = emit_nn.adaptive_avg_pool2d(ctx.g, batched(ctx, x, 2), (height, width))
    return reshape(ctx.g, y, ctx.shape)


@aten("adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(ctx: AtenContext, x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average (N, C, L) down to a given length."""
    y = emit_nn.adaptive_avg_pool2d(ctx.g, as_pictures(ctx, x), (1, ctx.shape[-1]))
    return reshape(ctx.g, y, ctx.shape)


def _define_adaptive(rank: int) -> None:
    @aten(f"adaptive_max_pool{rank}d.default")
    def largest(ctx: AtenContext, x: Tensor, output_size: Sequence[int]) -> list[Tensor | Missing]:
        y = x
        for dim in reversed(range(x.rank - rank, x.rank)):  # so the first in row-major order wins
            y = emit_nn.max_bins(ctx.g, y, dim, ctx.shape[dim])
        sizes, counts = x.shape[-rank:], ctx.shape[-rank:]
        if any(size % count for size, count in zip(sizes, counts, strict=True)):
            return [y, Missing("places of maxima in bins of unequal sizes")]
        kernel = tuple(size // count for size, count in zip(sizes, counts, strict=True))
        window = Window(kernel, kernel, (0, 0) * rank, (1,) * rank)
        places = max_places(ctx.g, batched(ctx, x, rank), window)
        return [y, reshape(ctx.g, places, ctx.shape)]


for _rank in (1, 2, 3):
    _define_adaptive(_rank)


@aten("adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool3d(ctx: AtenContext, x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average down to a given depth, height and width."""
    for dim in range(x.rank - 3, x.rank):
        x = emit_nn.average_bins(ctx.g, x, dim, ctx.shape[dim])
    return x


@aten("_trilinear.default")
def trilinear(
    ctx: AtenContext,
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int,
) -> Tensor:
    """Sum products of three tensors, each widened by dimensions of size 1."""
    product: Tensor | None = None
    for tensor, expand in ((i1, expand1), (i2, expand2), (i3, expand3)):
        shape = list(tensor.shape)
        for dim in expand:
            shape.insert(dim, 1)
        wide = reshape(ctx.g, tensor, tuple(shape))
        product = wide if product is None else emit.arithmetic(ctx.g, "mul", product, wide)
    assert product is not None
    return emit.reduce(ctx.g, "reduce_sum", product, sumdim, keepdims=False)
