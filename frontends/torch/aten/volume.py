"""ATen operators of volumes: convolution and pooling of (N, C, D, H, W), or (C, D, H, W)."""

from collections.abc import Sequence
from typing import Any

from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.nn import Window
from pockengine.frontends.emit.places import max_places, unpooled
from pockengine.frontends.emit.volume import HWDIO
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.nn import average
from pockengine.frontends.torch.aten.registry import AtenContext, aten


def _triple(sizes: Sequence[int]) -> tuple[int, ...]:
    """Read a size for all three directions, or one each."""
    return (sizes[0],) * 3 if len(sizes) == 1 else tuple(sizes)


def _sides(padding: Sequence[int]) -> tuple[int, ...]:
    """Read a padding that is the same on both sides of each direction."""
    return tuple(size for size in _triple(padding) for _ in range(2))


def _batched(ctx: AtenContext, x: Tensor) -> Tensor:
    return x if x.rank == 5 else reshape(ctx.g, x, (1, *x.shape))


@aten("conv3d.default", "conv3d.padding", weight=HWDIO)
def conv3d(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve in three dimensions; padding is sizes, "same" or "valid"."""
    kernel = weight.shape[2:]
    if padding == "same":
        sides = emit_nn.same_padding(kernel, _triple(dilation))
    else:
        sides = (0,) * 6 if isinstance(padding, str) else _sides(padding)
    window = Window(kernel, _triple(stride), sides, _triple(dilation))
    y = emit_volume.conv3d(ctx.g, _batched(ctx, x), weight, bias, window, groups)
    return reshape(ctx.g, y, ctx.shape)


@aten("conv_transpose3d.input", weight=HWDIO)
def conv_transpose3d(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """Undo the shape of a convolution: the input gradient of the one with this weight."""
    window = Window(weight.shape[2:], _triple(stride), _sides(padding), _triple(dilation))
    volume, size = _batched(ctx, x), ctx.shape[-3:]
    y = emit_volume.conv_transpose3d(ctx.g, volume, weight, bias, window, groups, size)
    return reshape(ctx.g, y, ctx.shape)


def _max_window(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    """Return how windows slide over volumes."""
    kernel = _triple(kernel_size)
    steps = _triple(stride) if stride else kernel
    window = Window(kernel, steps, _sides(padding), _triple(dilation))
    return window.ceiled(x.shape[-3:]) if ceil_mode else window


@aten("max_pool3d.default")
def max_pool3d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Take each window's maximum."""
    y = emit_volume.max_pool3d(ctx.g, _batched(ctx, x), _max_window(x, **window))
    return reshape(ctx.g, y, ctx.shape)


@aten("max_pool3d_with_indices.default")
def max_pool3d_with_indices(ctx: AtenContext, x: Tensor, **window: Any) -> list[Tensor]:
    """Take each window's maximum, and where in its channel it was."""
    places = max_places(ctx.g, _batched(ctx, x), _max_window(x, **window))
    return [max_pool3d(ctx, x, **window), reshape(ctx.g, places, ctx.shape)]


@aten("max_unpool3d.default")
def max_unpool3d(
    ctx: AtenContext,
    x: Tensor,
    indices: Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Put maxima back where they were, zeros elsewhere."""
    volume, places = (_batched(ctx, part) for part in (x, indices))
    return reshape(ctx.g, unpooled(ctx.g, volume, places, ctx.shape[-3:]), ctx.shape)


@aten("avg_pool3d.default")
def avg_pool3d(
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
    kernel = _triple(kernel_size)
    steps = _triple(stride) if stride else kernel
    window = Window(kernel, steps, _sides(padding), (1, 1, 1))
    y = average(
        ctx.g,
        emit_volume.avg_pool3d,
        _batched(ctx, x),
        window,
        ceil_mode=ceil_mode,
        counted=count_include_pad,
        divisor=divisor_override,
    )
    return reshape(ctx.g, y, ctx.shape)
