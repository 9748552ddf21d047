"""ATen operators that resize pictures, or read them at places between their elements."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.sampling import Between, Outside, sample
from pockengine.frontends.layout import Tensor, plain, reshape
from pockengine.frontends.torch.aten.places import take
from pockengine.frontends.torch.aten.registry import AtenContext, aten


def _define_nearest(kind: str, rank: int) -> None:
    line = getattr(torch.ops.aten, f"{kind}1d").vec

    @aten(f"{kind}{rank}d.vec", f"{kind}{rank}d.default")
    def rule(
        ctx: AtenContext,
        x: Tensor,
        output_size: Sequence[int] | None,
        scale_factors: Sequence[float] | None = None,
        **scales: float | None,
    ) -> Tensor:
        factors: list[float | None] = [*(scale_factors or scales.values())] or [None] * rank
        for dim, scale in enumerate(factors, start=2):
            numbers = torch.arange(x.shape[dim], dtype=torch.float32).reshape(1, 1, -1)
            # PyTorch takes either the size or the scale; a given scale determines the sampling
            # places.
            size = None if scale else [ctx.shape[dim]]
            places = line(numbers, size, [scale] if scale else None).flatten().numpy()
            x = _nearest(ctx, x, dim, places[: ctx.shape[dim]].astype(np.int64))
        return x


def _nearest(ctx: AtenContext, x: Tensor, dim: int, places: np.ndarray) -> Tensor:
    """Pick elements of one dimension; where each is repeated alike, no index is read."""
    old, times = x.shape[dim], len(places) // x.shape[dim]
    if len(places) != old * times or (places != np.arange(old).repeat(times)).any():
        return take(ctx, x, dim, places)
    wide = reshape(ctx.g, x, (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :]))
    repeated = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
    wide = emit.broadcast(ctx.g, wide, repeated)
    return reshape(ctx.g, wide, (*x.shape[:dim], old * times, *x.shape[dim + 1 :]))


for _kind in ("upsample_nearest", "_upsample_nearest_exact"):
    for _rank in (1, 2, 3):
        _define_nearest(_kind, _rank)


@aten(
    *("upsample_bilinear2d.vec", "upsample_bilinear2d.default"),
    *("upsample_linear1d.vec", "upsample_linear1d.default"),
)
def upsample_linear(
    ctx: AtenContext,
    x: Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
    **scales: float | None,
) -> Tensor:
    """Interpolate (N, C, ...) between the two nearest elements of each dimension."""
    for dim, scale in _scales(x, scale_factors, scales):
        x = _linear(ctx, x, dim, size=ctx.shape[dim], align_corners=align_corners, scale=scale)
    return x


def _scales(
    x: Tensor, factors: Sequence[float | None] | None, scales: Mapping[str, float | None]
) -> list[tuple[int, float | None]]:
    """Pair the dimensions after the channels with their scales, which may be missing."""
    dims = range(2, x.rank)
    return list(zip(dims, factors or list(scales.values()) or [None] * len(dims), strict=True))


def _define_smoothed(kind: str) -> None:
    operator = getattr(torch.ops.aten, f"_upsample_{kind}2d_aa").default

    @aten(f"_upsample_{kind}2d_aa.vec", f"_upsample_{kind}2d_aa.default")
    def rule(
        ctx: AtenContext,
        x: Tensor,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
        **scales: float | None,
    ) -> Tensor:
        """Interpolate (N, C, H, W) after smoothing by as much as it shrinks (antialias=True)."""
        for dim, scale in _scales(x, scale_factors, scales):
            old, new = x.shape[dim], ctx.shape[dim]
            picture = torch.eye(old)[None, None]  # its columns alone are resized
            weights = operator(picture, [old, new], align_corners, None, scale)
            x = emit_nn.along_dim(ctx.g, x, dim, weights[0, 0].numpy())
        return x


for _kind in ("bilinear", "bicubic"):
    _define_smoothed(_kind)


def _linear(
    ctx: AtenContext, x: Tensor, dim: int, size: int, align_corners: bool, scale: float | None
) -> Tensor:
    """Interpolate along one dimension: y = low + (high - low) share, both taken from x."""
    old = x.shape[dim]
    if old == size and scale in (None, 1):
        return x
    places = source_places(old, size, align_corners, scale)
    low = np.minimum(places.astype(np.int64), old - 1)
    high = np.minimum(low + 1, old - 1)
    shape = [1] * x.rank
    shape[dim] = size
    share = ctx.g.constant((places - low).astype(np.float32).reshape(shape))
    first, second = (take(ctx, x, dim, index) for index in (low, high))
    change = emit.arithmetic(ctx.g, "sub", second, first)
    return emit.arithmetic(ctx.g, "add", first, emit.arithmetic(ctx.g, "mul", change, plain(share)))


@aten("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(
    ctx: AtenContext,
    x: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """Read pictures or volumes at places from -1 to 1."""
    between, outside = Between(interpolation_mode), Outside(padding_mode)
    return sample(ctx.g, x, grid, between=between, outside=outside, corners=align_corners)


def source_places(old: int, new: int, align_corners: bool, scale: float | None) -> np.ndarray:
    """Return the source coordinate of each new element, as PyTorch computes it; shape (new,)."""
    index = np.arange(new, dtype=np.float64)
    if align_corners:
        return index * ((old - 1) / (new - 1) if new > 1 else 0.0)
    step = 1 / scale if scale else old / new
    return np.maximum((index + 0.5) * step - 0.5, 0.0)
