"""ATen operators that rearrange elements; most move data only when a consumer needs it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.dtypes import ELSE
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.slices import slice_at
from pockengine.frontends.layout import Tensor, permute, plain, reshape
from pockengine.frontends.torch.aten.places import pad_by_copies
from pockengine.frontends.torch.aten.registry import AtenContext, Missing, aten

NOTHING = Missing("a part without elements")


@aten(
    "flatten.using_ints",
    "reshape.default",
    "unflatten.int",
    "unsqueeze.default",
    "view.default",
    "_unsafe_view.default",
    "view_as.default",
    "reshape_as.default",
)
def to_shape(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Reshape to PyTorch's result shape."""
    return reshape(ctx.g, x, ctx.shape)


@aten("permute.default")
def permute_dims(ctx: AtenContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Reorder the dimensions."""
    return permute(x, dims)


@aten("transpose.default", "transpose.int")
def transpose(ctx: AtenContext, x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swap two dimensions."""
    if not x.rank:
        return x
    dims = list(range(x.rank))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permute(x, dims)


@aten("t.default", "numpy_T.default", "mT.default")
def swap_last(ctx: AtenContext, x: Tensor) -> Tensor:
    """Swap the dimensions of a matrix."""
    return x if x.rank < 2 else transpose(ctx, x, -2, -1)


@aten("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(ctx: AtenContext, x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Drop dimensions of size 1: all, or only among the given ones."""
    dims = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    return emit.squeeze(ctx.g, x, [d for d in dims if x.rank and x.shape[d] == 1])


@aten("cat.default", "concat.default")
def cat(ctx: AtenContext, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate along an existing dimension."""
    return emit.concat(ctx.g, tensors, dim)


@aten("stack.default")
def stack(ctx: AtenContext, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate along a new dimension."""
    dim %= tensors[0].rank + 1
    wide = [reshape(ctx.g, part, (*part.shape[:dim], 1, *part.shape[dim:])) for part in tensors]
    return emit.concat(ctx.g, wide, dim)


@aten("pad.default", "constant_pad_nd.default")
def pad(
    ctx: AtenContext,
    x: Tensor,
    pad: Sequence[int],
    value: Number | None,
    mode: str = "constant",
) -> Tensor:
    """Pad by a constant or by copies; sizes come in pairs from the last dimension on."""
    if mode != "constant":
        return pad_by_copies(ctx, x, pad, mode)
    low, high = [0] * x.rank, [0] * x.rank
    for index in range(len(pad) // 2):
        low[-1 - index], high[-1 - index] = pad[2 * index : 2 * index + 2]
    return emit.pad(ctx.g, x, tuple(low), tuple(high), value=float(value or 0))


@aten("slice.Tensor")
def slice_tensor(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    start: Tensor | int | None,
    end: Tensor | int | None,
    step: int,
) -> Tensor:
    """x[start:end:step] along a dimension, by Python's rules; by data it is as long as stated."""
    if isinstance(start, Tensor) and step == 1:
        return slice_at(ctx.g, x, dim, start=start, size=ctx.shape[dim])
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        raise Unsupported("a slice by data whose step is not 1, or that begins at a number")
    first, last, stride = slice(start, end, step).indices(x.shape[dim])
    return emit.slice_dim(ctx.g, x, dim, start=first, stop=last, step=stride)


@aten("narrow.default", "narrow.Tensor")
def narrow(ctx: AtenContext, x: Tensor, dim: int, start: Tensor | int, length: int) -> Tensor:
    """Take `length` elements along a dimension."""
    if isinstance(start, Tensor):
        return slice_at(ctx.g, x, dim, start=start, size=length)
    start %= x.shape[dim]
    return emit.slice_dim(ctx.g, x, dim, start=start, stop=start + length)


@aten("select.int")
def select(ctx: AtenContext, x: Tensor, dim: int, index: Tensor | int) -> Tensor:
    """Take one element along a dimension, and drop the dimension."""
    if isinstance(index, Tensor):
        return emit.squeeze(ctx.g, slice_at(ctx.g, x, dim, start=index, size=1), [dim])
    index %= x.shape[dim]
    return emit.squeeze(ctx.g, emit.slice_dim(ctx.g, x, dim, start=index, stop=index + 1), [dim])


@aten("chunk.default")
def chunk(ctx: AtenContext, x: Tensor, chunks: int, dim: int) -> list[Tensor]:
    """Split into at most `chunks` parts of equal size; the last may be smaller."""
    return split(ctx, x, -(-x.shape[dim] // chunks), dim)


@aten("split.Tensor")
def split(ctx: AtenContext, x: Tensor, split_size: int, dim: int) -> list[Tensor | Missing]:
    """Split into parts of this size; the last may be smaller."""
    size = x.shape[dim]
    parts = [min(split_size, size - first) for first in range(0, size, split_size)]
    return split_sizes(ctx, x, parts, dim)


@aten("split_with_sizes.default", "split.sizes")
def split_sizes(
    ctx: AtenContext, x: Tensor, split_sizes: Sequence[int], dim: int
) -> list[Tensor | Missing]:
    """Split into parts of these sizes."""
    parts: list[Tensor | Missing] = []
    first = 0
    for size in split_sizes:
        part = emit.slice_dim(ctx.g, x, dim, start=first, stop=first + size) if size else NOTHING
        parts.append(part)
        first += size
    return parts


@aten("unbind.int")
def unbind(ctx: AtenContext, x: Tensor, dim: int) -> list[Tensor]:
    """Take every element along a dimension."""
    return [select(ctx, x, dim, index) for index in range(x.shape[dim])]


@aten("expand.default", "expand_as.default")
def expand(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Repeat dimensions of size 1."""
    return emit.broadcast(ctx.g, x, ctx.shape)


@aten("broadcast_tensors.default")
def broadcast_tensors(ctx: AtenContext, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Repeat dimensions of size 1 until all shapes agree."""
    shape = tuple(int(n) for n in np.broadcast_shapes(*(tensor.shape for tensor in tensors)))
    return [emit.broadcast(ctx.g, tensor, shape) for tensor in tensors]


@aten("channel_shuffle.default")
def channel_shuffle(ctx: AtenContext, x: Tensor, groups: int) -> Tensor:
    """Deal the channels of (N, C, ...) out to groups in turn."""
    batch, channels, *sizes = x.shape
    split = reshape(ctx.g, x, (batch, groups, channels // groups, *sizes))
    dealt = permute(split, (0, 2, 1, *range(3, split.rank)))
    return reshape(ctx.g, dealt, x.shape)


@aten("pixel_shuffle.default")
def pixel_shuffle(ctx: AtenContext, x: Tensor, upscale_factor: int) -> Tensor:
    """Spread r * r channels over r x r pixels: (N, C r r, H, W) to (N, C, H r, W r)."""
    if x.rank != 4:
        raise Unsupported("pixel shuffle of a tensor that is not (N, C, H, W)")
    r = upscale_factor
    batch, channels, height, width = x.shape
    split = reshape(ctx.g, x, (batch, channels // (r * r), r, r, height, width))
    return reshape(ctx.g, permute(split, (0, 1, 4, 2, 5, 3)), ctx.shape)


@aten("zeros_like.default", "new_zeros.default")
def zeros(ctx: AtenContext, **_: Any) -> Tensor:
    """Make a constant of zeros."""
    return _constant(ctx, 0)


@aten("ones_like.default", "new_ones.default")
def ones(ctx: AtenContext, **_: Any) -> Tensor:
    """Make a constant of ones."""
    return _constant(ctx, 1)


@aten("full_like.default", "new_full.default")
def full(ctx: AtenContext, fill_value: Number, **_: Any) -> Tensor:
    """Make a constant of one number."""
    return _constant(ctx, fill_value)


@aten("fill.Scalar", "fill.Tensor")
def fill(ctx: AtenContext, x: Tensor, value: Operand) -> Tensor:
    """Fill with one number."""
    if not isinstance(value, Tensor):
        return _constant(ctx, value)
    return emit.broadcast(ctx.g, emit.cast(ctx.g, value, x.dtype), ctx.shape)


@aten("zero.default")
def zero(ctx: AtenContext, x: Tensor) -> Tensor:
    """Fill with zeros."""
    return _constant(ctx, 0)


def _constant(ctx: AtenContext, number: Number) -> Tensor:
    if ctx.dtype is None:
        raise Unsupported(f"a constant of {ELSE}")
    return plain(ctx.g.constant(np.full(ctx.shape, number, ctx.dtype.numpy)))
