"""ONNX operators that only move elements, and those that return shapes."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pockengine.compiler.ir import DType, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit.index import wrapped
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, permute, plain, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, dims_of, integers, onnx_op


@onnx_op("Shape")
def shape(ctx: OnnxContext, x: Tensor, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """Return the shape, a constant."""
    return np.asarray(x.shape[start:end], np.int64)


@onnx_op("Size")
def size(ctx: OnnxContext, x: Tensor) -> np.ndarray:
    """Return the number of elements, a constant."""
    return np.asarray(x.size, np.int64)


@onnx_op("Reshape", static=(1,))
def reshape_(ctx: OnnxContext, x: Tensor, target: np.ndarray, *, allowzero: int = 0) -> Tensor:
    """Reshape; -1 is inferred, and 0 copies the input's size."""
    sizes = integers(target) or []
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    if sizes.count(-1) == 1:
        known = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = x.size // max(known, 1)
    if math.prod(sizes) != x.size or min(sizes, default=1) < 1:
        raise Unsupported(f"{list(x.shape)} cannot be reshaped to {integers(target)}")
    return reshape(ctx.g, x, tuple(sizes))


@onnx_op("Flatten")
def flatten(ctx: OnnxContext, x: Tensor, *, axis: int = 1) -> Tensor:
    """Reshape to a matrix: the dimensions before `axis`, and from `axis` on."""
    axis = axis % x.rank if axis != x.rank else axis
    return reshape(ctx.g, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_op("Transpose")
def transpose(ctx: OnnxContext, x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    """Permute the dimensions; reverse them by default."""
    dims = list(range(x.rank))
    if perm is not None and sorted(perm) != dims:
        raise Unsupported(f"{perm} is no order of the dimensions of {list(x.shape)}")
    return permute(x, dims[::-1] if perm is None else perm)


@onnx_op("Squeeze", static=(1,))
def squeeze(
    ctx: OnnxContext, x: Tensor, operand: np.ndarray | None = None, *, axes: list[int] | None = None
) -> Tensor:
    """Drop dimensions of size 1; by default all of them."""
    dims = dims_of(x.rank, operand, axes)
    if dims is None:
        dims = [dim for dim, size in enumerate(x.shape) if size == 1]
    if any(x.shape[dim] != 1 for dim in dims):
        raise Unsupported(f"dimensions {dims} of {list(x.shape)} are not all of size 1")
    return emit.squeeze(ctx.g, x, dims)


@onnx_op("Unsqueeze", static=(1,))
def unsqueeze(
    ctx: OnnxContext, x: Tensor, operand: np.ndarray | None = None, *, axes: list[int] | None = None
) -> Tensor:
    """Add dimensions of size 1."""
    count = len(axes or []) if operand is None else operand.size
    rank = x.rank + count
    added = set(dims_of(rank, operand, axes) or [])
    sizes = iter(x.shape)
    return reshape(ctx.g, x, tuple(1 if dim in added else next(sizes) for dim in range(rank)))


@onnx_op("Concat")
def concat(ctx: OnnxContext, *parts: Tensor, axis: int) -> Tensor:
    """Concatenate along a dimension."""
    return emit.concat(ctx.g, parts, axis)


@onnx_op("Split", static=(1,))
def split(
    ctx: OnnxContext,
    x: Tensor,
    sizes: np.ndarray | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    num_outputs: int | None = None,
) -> list[Tensor]:
    """Split along a dimension, by default into equal parts (the last may be smaller)."""
    length = x.shape[axis]
    parts = integers(sizes) if sizes is not None else split
    if parts is None:
        count = len(ctx.requested)
        if num_outputs not in (None, count):
            raise Unsupported(f"{num_outputs} parts for {count} outputs")
        chunk = -(-length // count)
        parts = [min(chunk, length - index * chunk) for index in range(count)]
    stops = np.cumsum(parts).tolist()
    if stops[-1] != length or min(parts) < 1:
        raise Unsupported(f"dimension {axis} of {list(x.shape)} cannot be split into {parts}")
    pieces = zip([0, *stops], stops, strict=False)
    return [emit.slice_dim(ctx.g, x, axis, start=start, stop=stop) for start, stop in pieces]


@onnx_op("Slice", static=(1, 2, 3, 4))
def slice_(
    ctx: OnnxContext,
    x: Tensor,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> Tensor:
    """Take start:end:step of some dimensions, with Python's semantics."""
    first, last = integers(starts) or [], integers(ends) or []
    dims = dims_of(x.rank, axes, None) or list(range(len(first)))
    strides = integers(steps) or [1] * len(first)
    for dim, start, end, step in zip(dims, first, last, strides, strict=True):
        places = range(x.shape[dim])[start:end:step]
        if not places:
            raise Unsupported(f"{start}:{end}:{step} of dimension {dim} of {list(x.shape)}: empty")
        low, high = sorted((places[0], places[-1]))
        x = emit.slice_dim(ctx.g, x, dim, start=low, stop=high + 1, step=abs(step))
        if step < 0:
            x = Tensor(ctx.g.reverse(x.value, axes=(x.axis(dim),)), x.layout)
    return x


@onnx_op("Expand", static=(1,))
def expand(ctx: OnnxContext, x: Tensor, target: np.ndarray) -> Tensor:
    """Broadcast to a shape, which may itself be broadcast."""
    return emit.broadcast(ctx.g, x, _broadcast(x.shape, tuple(integers(target) or ())))


def _broadcast(a: Shape, b: Shape) -> Shape:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise Unsupported(f"{list(a)} cannot be broadcast to {list(b)}") from None


@onnx_op("Tile", static=(1,))
def tile(ctx: OnnxContext, x: Tensor, repeats: np.ndarray) -> Tensor:
    """Repeat the whole tensor a number of times along each dimension."""
    counts = integers(repeats) or []
    wide = tuple(part for size in x.shape for part in (1, size))
    pairs = zip(counts, x.shape, strict=True)
    full = tuple(part for count, size in pairs for part in (count, size))
    target = tuple(count * size for count, size in zip(counts, x.shape, strict=True))
    if min(target, default=1) < 1:
        raise Unsupported(f"repeating {list(x.shape)} {counts} times leaves nothing")
    return reshape(ctx.g, emit.broadcast(ctx.g, reshape(ctx.g, x, wide), full), target)


@onnx_op("Pad", static=(1, 2, 3))
def pad(
    ctx: OnnxContext,
    x: Tensor,
    pads: np.ndarray,
    value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """Pad by a constant, where negative sizes cut, or by x's own elements."""
    sizes = integers(pads) or []
    dims = dims_of(x.rank, axes, None) or list(range(x.rank))
    low, high = [0] * x.rank, [0] * x.rank
    half = len(sizes) // 2
    for dim, before, after in zip(dims, sizes[:half], sizes[half:], strict=True):
        low[dim], high[dim] = before, after
    if mode != "constant":
        return _padded_by_copies(ctx, x, low, high=high, mode=mode)
    filling = 0.0 if value is None else value.item()
    return emit.pad(ctx.g, x, tuple(low), tuple(high), value=filling)


COPIES: dict[str, Literal["edge", "reflect", "wrap"]] = {
    "edge": "edge",
    "reflect": "reflect",
    "wrap": "wrap",
}
"""Modes of padding by x's own elements, as NumPy names them."""


def _padded_by_copies(
    ctx: OnnxContext, x: Tensor, low: Sequence[int], high: Sequence[int], mode: str
) -> Tensor:
    """Pad each dimension as NumPy's "edge", "reflect" or "wrap"."""
    if mode not in COPIES or min(*low, *high) < 0:
        raise Unsupported(f"padding in mode {mode!r} that cuts, or of an unknown mode")
    for dim, sides in enumerate(zip(low, high, strict=True)):
        if any(sides):
            places = np.pad(np.arange(x.shape[dim]), sides, mode=COPIES[mode])
            value = ctx.g.take(x.value, ctx.g.constant(places), axis=x.axis(dim))
            x = Tensor(value, x.layout)
    return x


@onnx_op("DepthToSpace")
def depth_to_space(ctx: OnnxContext, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Spread channels over b x b pixels; a pixel's place is their first part, or in CRD the last.

    (N, b b C, H, W) becomes (N, C, H b, W b).
    """
    b, (batch, channels, height, width) = blocksize, x.shape
    if mode not in ("DCR", "CRD") or channels % (b * b):
        raise Unsupported(f"{channels} channels in blocks of {b} x {b}, mode {mode!r}")
    depth = channels // (b * b)
    if mode == "DCR":
        split, order = (batch, b, b, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (batch, depth, b, b, height, width), (0, 1, 4, 2, 5, 3)
    moved = permute(reshape(ctx.g, x, split), order)
    return reshape(ctx.g, moved, (batch, depth, height * b, width * b))


@onnx_op("SpaceToDepth")
def space_to_depth(ctx: OnnxContext, x: Tensor, *, blocksize: int) -> Tensor:
    """Gather b x b pixels in channels: (N, C, H, W) becomes (N, b b C, H / b, W / b)."""
    b, (batch, channels, height, width) = blocksize, x.shape
    if height % b or width % b:
        raise Unsupported(f"pictures of {height} x {width} in blocks of {b} x {b}")
    split = reshape(ctx.g, x, (batch, channels, height // b, b, width // b, b))
    moved = permute(split, (0, 3, 5, 1, 2, 4))
    return reshape(ctx.g, moved, (batch, channels * b * b, height // b, width // b))


@onnx_op("Trilu", static=(1,))
def trilu(ctx: OnnxContext, x: Tensor, k: np.ndarray | None = None, *, upper: int = 1) -> Tensor:
    """Keep the upper or lower triangle of each matrix, from its k-th diagonal on."""
    offset = 0 if k is None else int(k)
    rows, columns = x.shape[-2:]
    lower = np.tri(rows, columns, offset - 1 if upper else offset, dtype=np.bool_)
    mask = plain(ctx.g.constant(~lower if upper else lower))
    return emit.elementwise(ctx.g, "where", mask, x, emit.scalar(ctx.g, 0, x.dtype))


@onnx_op("OneHot", static=(1, 2))
def one_hot(
    ctx: OnnxContext, index: Tensor, depth: np.ndarray, values: np.ndarray, *, axis: int = -1
) -> Tensor:
    """One-hot encode each index along a new dimension, with values on and off."""
    count = int(np.ravel(depth)[0])
    dim = axis % (index.rank + 1)
    if not 1 <= count <= 2**20:
        raise Unsupported(f"{count} classes")
    line = np.arange(count, dtype=index.dtype.numpy)
    line = line.reshape([count if other == dim else 1 for other in range(index.rank + 1)])
    wide = reshape(ctx.g, wrapped(ctx.g, index, count), (*index.shape[:dim], 1, *index.shape[dim:]))
    here = emit.elementwise(ctx.g, "eq", wide, plain(ctx.g.constant(line)))
    off, on = (plain(ctx.g.scalar(value.item(), DType.of(values))) for value in values)
    return emit.elementwise(ctx.g, "where", here, on, off)
