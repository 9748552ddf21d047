"""Primitives that only move elements."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit.slices import put_at, slice_at
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import Tensor, framework_order, identity, permute, plain, reshape


@primitive("reshape", "expand_dims")
def reshape_(
    ctx: JaxContext, x: Tensor, *, dimensions: Sequence[int] | None = None, **_: Any
) -> Tensor:
    """Reshape, after a permutation by `dimensions`, or add dimensions of size 1."""
    return reshape(ctx.g, x if dimensions is None else permute(x, dimensions), ctx.shape)


@primitive("squeeze")
def squeeze(ctx: JaxContext, x: Tensor, *, dimensions: Sequence[int], **_: Any) -> Tensor:
    """Drop dimensions of size 1."""
    return emit.squeeze(ctx.g, x, dimensions)


@primitive("transpose")
def transpose(ctx: JaxContext, x: Tensor, *, permutation: Sequence[int], **_: Any) -> Tensor:
    """Permute the dimensions; moves nothing yet."""
    return permute(x, permutation)


@primitive("broadcast_in_dim")
def broadcast_in_dim(
    ctx: JaxContext, x: Tensor, *, broadcast_dimensions: Sequence[int], **_: Any
) -> Tensor:
    """Put dimension i of x at `broadcast_dimensions[i]` of the result and repeat it there."""
    sizes = dict(zip(map(int, broadcast_dimensions), x.shape, strict=True))
    wide = tuple(sizes.get(dim, 1) for dim in range(len(ctx.shape)))
    return emit.broadcast(ctx.g, reshape(ctx.g, x, wide), ctx.shape)


@primitive("concatenate")
def concatenate(ctx: JaxContext, *parts: Tensor, dimension: int, **_: Any) -> Tensor:
    """Concatenate along a dimension."""
    return emit.concat(ctx.g, parts, dimension)


@primitive("stack")
def stack(ctx: JaxContext, *parts: Tensor, axis: int, **_: Any) -> Tensor:
    """Stack tensors along a new dimension."""
    shape = list(ctx.shape)
    shape[axis] = 1
    return emit.concat(ctx.g, [reshape(ctx.g, part, tuple(shape)) for part in parts], axis)


@primitive("unstack")
def unstack(ctx: JaxContext, x: Tensor, *, axis: int, **_: Any) -> list[Tensor]:
    """Split a dimension into tensors without it."""
    places = range(x.shape[axis])
    lines = (emit.slice_dim(ctx.g, x, axis, start=place, stop=place + 1) for place in places)
    return [emit.squeeze(ctx.g, line, [axis]) for line in lines]


@primitive("tile")
def tile(ctx: JaxContext, x: Tensor, *, reps: Sequence[int], **_: Any) -> Tensor:
    """Repeat the whole tensor along each dimension."""
    pairs = list(zip(reps, x.shape, strict=True))
    lines = reshape(ctx.g, x, tuple(part for _, size in pairs for part in (1, size)))
    wide = emit.broadcast(ctx.g, lines, tuple(int(part) for pair in pairs for part in pair))
    return reshape(ctx.g, wide, ctx.shape)


@primitive("split")
def split(
    ctx: JaxContext, x: Tensor, *, sizes: Sequence[int], axis: int, **_: Any
) -> list[Tensor | np.ndarray]:
    """Cut into parts along a dimension; a part may be empty."""
    stops = np.cumsum(sizes).tolist()
    spans = zip([0, *stops], stops, ctx.shapes, strict=False)
    return [
        emit.slice_dim(ctx.g, x, axis, start=start, stop=stop)
        if start < stop
        else np.zeros(shape, x.dtype.numpy)
        for start, stop, shape in spans
    ]


@primitive("slice")
def slice_(
    ctx: JaxContext,
    x: Tensor,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
    **_: Any,
) -> Tensor:
    """Take start:limit:stride of each dimension."""
    step = strides or (1,) * x.rank
    bounds = (tuple(map(int, side)) for side in (start_indices, limit_indices, step))
    return emit.slice_(ctx.g, x, *bounds)


@primitive("rev")
def rev(ctx: JaxContext, x: Tensor, *, dimensions: Sequence[int], **_: Any) -> Tensor:
    """Reverse the order along some dimensions."""
    axes = tuple(sorted(x.axis(dim) for dim in dimensions))
    return Tensor(ctx.g.reverse(x.value, axes=axes), x.layout)


@primitive("pad", static=(1,))
def pad(
    ctx: JaxContext,
    x: Tensor,
    value: np.ndarray,
    *,
    padding_config: Sequence[tuple[int, int, int]],
    **_: Any,
) -> Tensor:
    """Pad by a constant, between the elements too; a negative size cuts."""
    low, high, inner = (tuple(int(sizes[side]) for sizes in padding_config) for side in range(3))
    if any(inner):
        x = spread(ctx.g, x, inner, float(value))
    return emit.pad(ctx.g, x, low, high, value=float(value))


def spread(g: Builder, x: Tensor, gaps: Shape, value: float) -> Tensor:
    """Put `gaps` copies of the value between the elements of each dimension."""
    pairs = tuple(zip(x.shape, gaps, strict=True))
    lines = tuple(part for size, _ in pairs for part in (size, 1))
    behind = tuple(part for _, gap in pairs for part in (0, gap))
    apart = g.reshape(framework_order(g, x), shape=lines)
    padded = g.pad(apart, low=(0,) * len(lines), high=behind, value=value)
    whole = plain(g.reshape(padded, shape=tuple(size * (gap + 1) for size, gap in pairs)))
    stop = tuple((size - 1) * (gap + 1) + 1 for size, gap in pairs)
    return emit.slice_(g, whole, start=(0,) * x.rank, stop=stop, step=(1,) * x.rank)


@primitive("dynamic_slice")
def dynamic_slice(
    ctx: JaxContext, x: Tensor, *starts: Tensor, slice_sizes: Sequence[int], **_: Any
) -> Tensor:
    """Take a slice whose start may be data; it is clamped to be in bounds."""
    for dim, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        room = x.shape[dim] - size
        if not room:
            continue
        first = _clamped(ctx, start, room)
        known = ctx.g.graph.constants.get(first.value)
        if known is not None:
            x = emit.slice_dim(ctx.g, x, dim, start=int(known), stop=int(known) + size)
        else:
            x = slice_at(ctx.g, x, dim, start=first, size=size)
    return x


@primitive("dynamic_update_slice")
def dynamic_update_slice(
    ctx: JaxContext, x: Tensor, update: Tensor, *starts: Tensor, **_: Any
) -> Tensor:
    """Replace a slice whose start may be data; it is clamped to be in bounds."""
    placed = {
        dim: _clamped(ctx, start, x.shape[dim] - update.shape[dim])
        for dim, start in enumerate(starts)
        if update.shape[dim] != x.shape[dim]
    }
    return put_at(ctx.g, x, update, placed)


def _clamped(ctx: JaxContext, start: Tensor, most: int) -> Tensor:
    """Clamp a start to 0..most."""
    known = ctx.g.graph.constants.get(start.value)
    if known is not None:
        return emit.scalar(ctx.g, min(max(int(known), 0), most), start.dtype)
    return emit.arithmetic(ctx.g, "minimum", emit.arithmetic(ctx.g, "maximum", start, 0), most)


def merged(g: Builder, x: Tensor, *groups: Sequence[int]) -> Tensor:
    """Permute the dimensions, then merge each group into one."""
    order = [dim for group in groups for dim in group]
    shape = x.shape
    moved = x if tuple(order) == identity(x.rank) else permute(x, order)
    return reshape(g, moved, tuple(math.prod(shape[dim] for dim in group) for group in groups))
