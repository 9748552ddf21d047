"""ONNX operators of windows over lines, pictures and volumes: convolution and pooling."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import I64
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.emit.places import max_places, unpooled
from pockengine.frontends.emit.volume import HWDIO
from pockengine.frontends.layout import HWIO, Layout, Tensor, plain, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, integers, onnx_op


def _conv_wish(rank: int, attributes: Mapping[str, Any]) -> Layout | None:
    return {3: (2, 1, 0), 4: HWIO, 5: HWDIO}.get(rank)


SIZES = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
"""Attributes of windows, which `window_of` reads."""


def window_of(
    x: Tensor,
    kernel_shape: Sequence[int] = (),
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> Window:
    """Return the window of a kernel over (N, C, ...); a line is a picture of height 1."""
    rank, kernel = x.rank - 2, kernel_shape
    if rank not in (1, 2, 3) or len(kernel) != rank:
        raise Unsupported(f"windows of {list(kernel)} over {list(x.shape)}; use up to three dims")
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
    sides = tuple(side for pair in zip(before, after, strict=True) for side in pair)
    return Window(tuple(kernel), tuple(steps), sides, tuple(gaps))


def _picture(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Convert a line to a picture of height 1."""
    return reshape(ctx.g, x, (*x.shape[:2], 1, x.shape[2])) if x.rank == 3 else x


def _as_line(ctx: OnnxContext, x: Tensor, y: Tensor) -> Tensor:
    """Convert the picture back to a line if `x` is one."""
    return reshape(ctx.g, y, (*y.shape[:2], y.shape[3])) if x.rank == 3 else y


@onnx_op("Conv", wish=_conv_wish, attributes=SIZES)
def conv(
    ctx: OnnxContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    **sizes: Any,
) -> Tensor:
    """Convolve in up to three dimensions."""
    if kernel_shape is not None and tuple(kernel_shape) != weight.shape[2:]:
        raise Unsupported(f"kernel_shape {kernel_shape} with a weight of {list(weight.shape)}")
    window = window_of(x, weight.shape[2:], **sizes)
    convolve = emit_volume.conv3d if x.rank == 5 else emit_nn.conv2d
    y = convolve(ctx.g, _picture(ctx, x), _picture(ctx, weight), bias, window, group)
    return _as_line(ctx, x, y)


@onnx_op("MaxPool", attributes=SIZES)
def max_pool(
    ctx: OnnxContext,
    x: Tensor,
    *,
    ceil_mode: int = 0,
    storage_order: int = 0,
    **sizes: Any,
) -> list[Tensor]:
    """Take each window's maximum; on request also its place among all elements of x."""
    window = window_of(x, **sizes)
    picture = _picture(ctx, x)
    if ceil_mode:
        window = window.ceiled(picture.shape[2:])
    pool = emit_volume.max_pool3d if x.rank == 5 else emit_nn.max_pool2d
    y = _as_line(ctx, x, pool(ctx.g, picture, window))
    if not ctx.wants(1):
        return [y]
    if storage_order:
        raise Unsupported("places of maxima in column-major order; use storage_order=0")
    places = _as_line(ctx, x, max_places(ctx.g, picture, window))
    return [y, emit.arithmetic(ctx.g, "add", places, _channels(ctx, x.shape))]


def _channels(ctx: OnnxContext, shape: Sequence[int]) -> Tensor:
    """Return where each channel of (N, C, ...) starts among all elements."""
    count, size = shape[0] * shape[1], math.prod(shape[2:])
    starts = np.arange(count, dtype=np.int64) * size
    return plain(ctx.g.constant(starts.reshape(*shape[:2], *[1] * (len(shape) - 2))))


@onnx_op("MaxUnpool", static=(2,))
def max_unpool(
    ctx: OnnxContext,
    x: Tensor,
    places: Tensor,
    output_shape: np.ndarray | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Scatter maxima to their positions, which are indices into the pooled input."""
    rank = x.rank - 2
    steps, cut = strides or [1] * rank, pads or [0] * 2 * rank
    own = [
        (x.shape[2 + i] - 1) * steps[i] - cut[i] - cut[rank + i] + kernel_shape[i]
        for i in range(rank)
    ]
    start = _channels(ctx, (*x.shape[:2], *own))
    within = emit.arithmetic(ctx.g, "sub", emit.cast(ctx.g, places, I64), start)
    y = unpooled(ctx.g, x, within, own)
    sizes = integers(output_shape) or y.shape
    more = tuple(size - had for size, had in zip(sizes, y.shape, strict=True))
    return emit.pad(ctx.g, y, (0,) * y.rank, more, value=0.0)


@onnx_op("AveragePool", attributes=SIZES)
def average_pool(
    ctx: OnnxContext,
    x: Tensor,
    *,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **sizes: Any,
) -> Tensor:
    """Average each window."""
    window = window_of(x, **sizes)
    if set(window.dilation) != {1}:
        raise Unsupported("average pooling with dilations")
    picture = _picture(ctx, x)
    ceiled = window.ceiled(picture.shape[2:]) if ceil_mode else window
    if ceiled != window and count_include_pad:
        if any(window.padding):
            raise Unsupported("average pooling with ceil_mode and counted padding; drop one")
        count_include_pad = 0
    pool = emit_volume.avg_pool3d if x.rank == 5 else emit_nn.avg_pool2d
    return _as_line(ctx, x, pool(ctx.g, picture, ceiled, bool(count_include_pad)))


@onnx_op("LpPool", attributes=SIZES)
def lp_pool(
    ctx: OnnxContext,
    x: Tensor,
    *,
    p: int = 2,
    ceil_mode: int = 0,
    **sizes: Any,
) -> Tensor:
    """Return the p-norm of each window."""
    window = window_of(x, **sizes)
    if set(window.dilation) != {1}:
        raise Unsupported("pooling by a norm with dilations")
    g, picture = ctx.g, _picture(ctx, x)
    window = window.ceiled(picture.shape[2:]) if ceil_mode else window
    powers = emit.arithmetic(g, "pow", emit.unary("abs")(g, picture), float(p))
    pool = emit_volume.avg_pool3d if x.rank == 5 else emit_nn.avg_pool2d
    total = emit.weighted(g, pool(g, powers, window, True), math.prod(window.kernel))
    return _as_line(ctx, x, emit.arithmetic(g, "pow", total, 1 / p))


@onnx_op("LRN")
def lrn(
    ctx: OnnxContext,
    x: Tensor,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Tensor:
    """Divide by a power of the sum of squares of neighboring channels."""
    g, (batch, channels, *sizes) = ctx.g, x.shape
    before = (size - 1) // 2
    lines = reshape(g, emit.unary("square")(g, x), (batch, 1, channels, math.prod(sizes)))
    window = Window((size, 1), (1, 1), (before, size - 1 - before, 0, 0))
    mean = reshape(g, emit_nn.avg_pool2d(g, lines, window, True), x.shape)
    base = emit.arithmetic(g, "add", emit.weighted(g, mean, alpha), bias)
    return emit.arithmetic(g, "div", x, emit.arithmetic(g, "pow", base, beta))
