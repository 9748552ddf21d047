"""ATen operators of volumes: convolution and pooling of (N, C, D, H, W), or (C, D, H, W)."""

from collections.abc import Sequence
from typing import Any

from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.volume import HWDIO
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.nn import average, define_max_pools
from pockengine.frontends.torch.aten.registry import AtenContext, aten
from pockengine.frontends.torch.aten.windows import batched, conv_window


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


define_max_pools(3, emit_volume.max_pool3d)


@aten("avg_pool3d.default")
def avg_pool3d(ctx: AtenContext, x: Tensor, **window: Any) -> Tensor:
    """Average each window."""
    return average(ctx, emit_volume.avg_pool3d, x, rank=3, **window)
