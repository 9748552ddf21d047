"""ATen operators of neural nets: convolution, linear, normalisation, pooling, softmax."""

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


def _pair(sizes: Sequence[int] | int) -> tuple[int, int]:
    """Read a size for both directions, or one each."""
    if isinstance(sizes, int):
        return (sizes, sizes)
    first, *rest = sizes
    return (first, rest[0] if rest else first)


def _symmetric(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """Read a padding of (height, width) that is the same on both sides."""
    height, width = _pair(padding)
    return (height, height, width, width)


def _batched(ctx: AtenContext, x: Tensor) -> Tensor:
    """Give a single picture (C, H, W) a batch of one."""
    return x if x.rank == 4 else reshape(ctx.g, x, (1, *x.shape))


def _unbatched(ctx: AtenContext, x: Tensor, y: Tensor) -> Tensor:
    """Take the batch of one away again if `x` had none."""
    return y if x.rank == 4 else emit.squeeze(ctx.g, y, [0])


@aten("conv2d.default", "conv2d.padding", weight=HWIO)
def conv2d(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve in two dimensions; padding is sizes, "same" or "valid"."""
    kernel = (weight.shape[2], weight.shape[3])
    if padding == "same":
        sides = emit_nn.same_padding(kernel, _pair(dilation))
    else:
        sides = (0, 0, 0, 0) if isinstance(padding, str) else _symmetric(padding)
    window = Window(kernel, _pair(stride), sides, _pair(dilation))
    y = emit_nn.conv2d(ctx.g, _batched(ctx, x), weight, bias, window, groups)
    return _unbatched(ctx, x, y)


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
    """Normalise by the batch's statistics, or in evaluation mode by the running ones."""
    norm = NormParams(weight, bias, running_mean, running_var, eps)
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
    """Normalise by the batch's statistics, and average those of all `count` batches."""
    share = emit.unary("reciprocal")(ctx.g, emit.cast(ctx.g, count, F32))
    return emit_nn.batch_norm_training(ctx.g, x, NormParams(weight, bias, mean, var, eps), share)


def _max_window(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    """Return how windows slide over pictures (N, C, H, W)."""
    kernel = _pair(kernel_size)
    steps = _pair(stride) if stride else kernel
    window = Window(kernel, steps, _symmetric(padding), _pair(dilation))
    return window.ceiled((x.shape[2], x.shape[3])) if ceil_mode else window


@aten("max_pool2d.default")
def max_pool2d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Take each window's maximum."""
    picture = _batched(ctx, x)
    return _unbatched(ctx, x, emit_nn.max_pool2d(ctx.g, picture, _max_window(picture, **window)))


@aten("max_pool2d_with_indices.default")
def max_pool2d_with_indices(ctx: AtenContext, x: Tensor, **window: Any) -> list[Tensor]:
    """Take each window's maximum, and where in its channel it was."""
    picture = _batched(ctx, x)
    places = max_places(ctx.g, picture, _max_window(picture, **window))
    return [max_pool2d(ctx, x, **window), _unbatched(ctx, x, places)]


@aten("max_unpool2d.default")
def max_unpool2d(
    ctx: AtenContext, x: Tensor, indices: Tensor, output_size: Sequence[int]
) -> Tensor:
    """Put maxima back where they were, zeros elsewhere."""
    picture, places = (_batched(ctx, part) for part in (x, indices))
    return _unbatched(ctx, x, unpooled(ctx.g, picture, places, ctx.shape[-2:]))


@aten("avg_pool2d.default")
def avg_pool2d(
    ctx: AtenContext,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Average each window."""
    picture = _batched(ctx, x)
    kernel = _pair(kernel_size)
    window = Window(kernel, _pair(stride) if stride else kernel, _symmetric(padding))
    y = average(
        ctx.g,
        emit_nn.avg_pool2d,
        picture,
        window,
        ceil_mode=ceil_mode,
        counted=count_include_pad,
        divisor=divisor_override,
    )
    return _unbatched(ctx, x, y)


def average(
    g: Builder,
    pool: Callable[[Builder, Tensor, Window, bool], Tensor],
    x: Tensor,
    window: Window,
    *,
    ceil_mode: bool,
    counted: bool,
    divisor: int | None,
) -> Tensor:
    """Average each window of (N, C, ...); `pool` takes whether padding counts.

    In ceil_mode PyTorch counts the padding that was asked for but not what the last, incomplete
    window adds.
    """
    ceiled = window.ceiled(x.shape[2:]) if ceil_mode else window
    if divisor is not None:
        return emit.weighted(g, pool(g, x, ceiled, True), math.prod(window.kernel) / divisor)
    y = pool(g, x, ceiled, counted)
    if ceiled == window or not counted:
        return y
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
    picture = _batched(ctx, x)
    y = emit_nn.adaptive_avg_pool2d(ctx.g, picture, _pair(ctx.shape[-2:]))
    return _unbatched(ctx, x, y)


@aten("adaptive_avg_pool1d.default")
def adaptive_avg_pool1d(ctx: AtenContext, x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average (N, C, L) down to a given length."""
    picture = reshape(ctx.g, x, (x.shape[0] if x.rank == 3 else 1, x.shape[-2], 1, x.shape[-1]))
    y = emit_nn.adaptive_avg_pool2d(ctx.g, picture, (1, ctx.shape[-1]))
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
        batch = x if x.rank == rank + 2 else reshape(ctx.g, x, (1, *x.shape))
        return [y, reshape(ctx.g, max_places(ctx.g, batch, window), ctx.shape)]


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
