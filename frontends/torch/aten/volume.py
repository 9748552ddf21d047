"""ATen operators of volumes: convolution and pooling of (N, C, D, H, W), or (C, D, H, W)."""

from collections.abc import Sequence
from typing import Any

from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.places import max_places, unpooled
from pockengine.frontends.emit.volume import HWDIO
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.nn import average
from pockengine.frontends.torch.aten.registry import AtenContext, aten
from pockengine.frontends.torch.aten.windows import batched, conv_window, max_window


@aten("conv3d.default", "conv3d.padding", weight=HWDIO)
def conv3d(
    ctx: AtenContext, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, **sizes: Any
) -> Tensor:
    """Convolve in three dimensions; padding is sizes, "same" or "valid"."""
    window = conv_window(weight.shape[2:], **sizes)
    y = emit_volume.conv3d(
        ctx.g, batched(ctx, x, 3), weight, bias=bias, window=window, groups=groups
    )
    return reshape(ctx.g, y, ctx.shape)


@aten("conv_transpose3d.input", weight=HWDIO)
def conv_transpose3d(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    output_padding: Sequence[int],
    **sizes: Any,
) -> Tensor:
    """Undo the shape of a convolution: the input gradient of the one with this weight."""
    window, size = conv_window(weight.shape[2:], **sizes), ctx.shape[-3:]
    volume = batched(ctx, x, 3)
    y = emit_volume.conv_transpose3d(
        ctx.g, volume, weight, bias=bias, window=window, groups=groups, size=size
    )
    return reshape(ctx.g, y, ctx.shape)


@aten("max_pool3d.default")
def max_pool3d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Take each window's maximum."""
    y = emit_volume.max_pool3d(ctx.g, batched(ctx, x, 3), max_window(x, 3, **window))
    return reshape(ctx.g, y, ctx.shape)


@aten("max_pool3d_with_indices.default")
def max_pool3d_with_indices(ctx: AtenContext, x: Tensor, **window: Any) -> list[Tensor]:
    """Take each window's maximum, and where in its channel it was."""
    places = max_places(ctx.g, batched(ctx, x, 3), max_window(x, 3, **window))
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
    volume, places = (batched(ctx, part, 3) for part in (x, indices))
    return reshape(ctx.g, unpooled(ctx.g, volume, places, ctx.shape[-3:]), ctx.shape)


@aten("avg_pool3d.default")
def avg_pool3d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Average each window."""
    return average(ctx, emit_volume.avg_pool3d, x, rank=3, **window)
