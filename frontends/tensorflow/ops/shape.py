"""TensorFlow operators that move elements: shapes, slices, joins, look-ups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import Shape
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, Truths, integers, tf_op
from pockengine.frontends.tensorflow.ops.truths import columns


@tf_op("Shape")
def shape(ctx: TfContext, x: Tensor, *, out_type: np.dtype) -> np.ndarray:
    """Return the shape, a constant."""
    return np.array(x.shape, out_type)


@tf_op("ShapeN")
def shapes(ctx: TfContext, *inputs: Tensor, out_type: np.dtype) -> list[np.ndarray]:
    """Return each shape."""
    return [np.array(x.shape, out_type) for x in inputs]


@tf_op("Size")
def size(ctx: TfContext, x: Tensor, *, out_type: np.dtype) -> np.ndarray:
    """Return the number of elements."""
    return np.array(x.size, out_type)


@tf_op("Rank")
def rank(ctx: TfContext, x: Tensor) -> np.ndarray:
    """Return the number of dimensions."""
    return np.array(x.rank, np.int32)


@tf_op("Reshape", static=(1,))
def reshape_(ctx: TfContext, x: Tensor, target: np.ndarray) -> Tensor:
    """Reshape; one size may be -1."""
    sizes = integers(target)
    if sizes.count(-1) == 1:
        known = int(np.prod([size for size in sizes if size != -1]))
        sizes[sizes.index(-1)] = x.size // max(known, 1)
    if int(np.prod(sizes)) != x.size:
        raise Unsupported(f"reshaping {list(x.shape)} to {integers(target)}")
    return _reshaped(ctx, x, tuple(sizes))


def _reshaped(ctx: TfContext, x: Tensor, shape: Shape) -> Tensor:
    """Reshape; a reshape that undoes another gives the original."""
    node = x.value.node
    if node is not None and node.op == "reshape" and node.operands[0].shape == shape:
        return plain(node.operands[0])
    return reshape(ctx.g, x, shape)


@tf_op("ExpandDims", static=(1,))
def expand_dims(ctx: TfContext, x: Tensor, axis: np.ndarray) -> Tensor:
    """Insert a dimension of size 1."""
    dim = integers(axis)[0] % (x.rank + 1)
    return reshape(ctx.g, x, (*x.shape[:dim], 1, *x.shape[dim:]))


@tf_op("Squeeze")
def squeeze(ctx: TfContext, x: Tensor, *, squeeze_dims: Sequence[int] = ()) -> Tensor:
    """Drop dimensions of size 1, all of them when none is named."""
    ones = [dim for dim in range(x.rank) if x.shape[dim] == 1]
    gone = {dim % x.rank for dim in squeeze_dims or ones}
    shape = tuple(size for dim, size in enumerate(x.shape) if dim not in gone)
    return _reshaped(ctx, x, shape)


@tf_op("Transpose", static=(1,))
def transpose(ctx: TfContext, x: Tensor, perm: np.ndarray) -> Tensor:
    """Permute the dimensions."""
    return permute(x, integers(perm))


@tf_op("BroadcastTo", static=(1,))
def broadcast_to(ctx: TfContext, x: Tensor, target: np.ndarray) -> Tensor:
    """Repeat dimensions of size 1."""
    return emit.broadcast(ctx.g, x, tuple(integers(target)))


@tf_op("Tile", static=(1,))
def tile(ctx: TfContext, x: Tensor, multiples: np.ndarray) -> Tensor:
    """Repeat the whole tensor a number of times along each dimension."""
    counts = integers(multiples)
    wide = tuple(part for size in x.shape for part in (1, size))
    full = tuple(part for pair in zip(counts, x.shape, strict=True) for part in pair)
    target = tuple(count * size for count, size in zip(counts, x.shape, strict=True))
    return reshape(ctx.g, emit.broadcast(ctx.g, reshape(ctx.g, x, wide), full), target)


@tf_op("ConcatV2", static=(-1,))
def concat(ctx: TfContext, *inputs: Any) -> Tensor:
    """Concatenate; the last input is the axis."""
    *parts, axis = inputs
    return emit.concat(ctx.g, parts, integers(axis)[0] % parts[0].rank)


@tf_op("Pack")
def pack(ctx: TfContext, *parts: Tensor, axis: int = 0) -> Tensor:
    """Stack along a new dimension."""
    dim = axis % (parts[0].rank + 1)
    wide = [reshape(ctx.g, x, (*x.shape[:dim], 1, *x.shape[dim:])) for x in parts]
    return emit.concat(ctx.g, wide, dim)


@tf_op("Unpack")
def unpack(
    ctx: TfContext, x: Tensor | Truths, *, num: int, axis: int = 0
) -> list[Tensor] | list[Truths]:
    """Split into slices of one dimension, which is dropped."""
    if isinstance(x, Truths):
        return columns(x, num, axis)
    parts = [emit.slice_dim(ctx.g, x, axis, start=i, stop=i + 1) for i in range(num)]
    return [emit.squeeze(ctx.g, part, [axis]) for part in parts]


@tf_op("Split", static=(0,))
def split(ctx: TfContext, axis: np.ndarray, x: Tensor, *, num_split: int) -> list[Tensor]:
    """Split into equal parts."""
    dim = integers(axis)[0] % x.rank
    return _cut(ctx, x, dim, [x.shape[dim] // num_split] * num_split)


@tf_op("SplitV", static=(1, 2))
def split_v(ctx: TfContext, x: Tensor, sizes: np.ndarray, axis: np.ndarray) -> list[Tensor]:
    """Split into parts of these sizes, one of which may be -1."""
    dim, parts = integers(axis)[0] % x.rank, integers(sizes)
    remainder = x.shape[dim] - sum(part for part in parts if part != -1)
    return _cut(ctx, x, dim, [remainder if part == -1 else part for part in parts])


def _cut(ctx: TfContext, x: Tensor, dim: int, sizes: Sequence[int]) -> list[Tensor]:
    ends = [int(end) for end in np.cumsum(sizes)]
    pairs = zip(ends, sizes, strict=True)
    return [emit.slice_dim(ctx.g, x, dim, start=end - size, stop=end) for end, size in pairs]


@tf_op("ReverseV2", static=(1,))
def reverse(ctx: TfContext, x: Tensor, axes: np.ndarray) -> Tensor:
    """Turn dimensions around."""
    ours = tuple(sorted(x.axis(dim) for dim in integers(axes)))
    return Tensor(ctx.g.reverse(x.value, axes=ours), x.layout)


@tf_op("Pad", "PadV2", static=(1, 2))
def pad(ctx: TfContext, x: Tensor, widths: np.ndarray, value: np.ndarray | None = None) -> Tensor:
    """Pad by a constant."""
    low, high = (tuple(integers(side)) for side in np.asarray(widths).T)
    return emit.pad(ctx.g, x, low, high, value=0.0 if value is None else float(value))


@tf_op("MirrorPad", static=(1,))
def mirror_pad(ctx: TfContext, x: Tensor, widths: np.ndarray, *, mode: str) -> Tensor:
    """Pad by mirroring, with the border repeated (SYMMETRIC) or not (REFLECT)."""
    skip = 1 if mode == "REFLECT" else 0
    for dim, (low, high) in enumerate(np.asarray(widths).tolist()):
        size = x.shape[dim]
        sides = [_mirrored(ctx, x, dim, start=skip, count=low)] if low else []
        sides.append(x)
        if high:
            sides.append(_mirrored(ctx, x, dim, start=size - skip - high, count=high))
        x = emit.concat(ctx.g, sides, dim)
    return x


def _mirrored(ctx: TfContext, x: Tensor, dim: int, start: int, count: int) -> Tensor:
    part = emit.slice_dim(ctx.g, x, dim, start=start, stop=start + count)
    return Tensor(ctx.g.reverse(part.value, axes=(part.axis(dim),)), part.layout)


@tf_op("Fill", static=(0,))
def fill(ctx: TfContext, target: np.ndarray, value: Tensor) -> Tensor:
    """Repeat a number."""
    return emit.broadcast(ctx.g, value, tuple(integers(target)))


@tf_op("GatherV2", "Gather", static=(2,))
def gather(
    ctx: TfContext,
    x: Tensor,
    index: Tensor,
    axis: np.ndarray | None = None,
    *,
    batch_dims: int = 0,
) -> Tensor:
    """Read x at these places of a dimension; places are taken to be in range."""
    dim = 0 if axis is None else integers(axis)[0] % x.rank
    if batch_dims:
        return _gather_batch(ctx, x, index, dim=dim, batch_dims=batch_dims)
    return plain(ctx.g.take(framework_order(ctx.g, x), framework_order(ctx.g, index), axis=dim))


def _gather_batch(ctx: TfContext, x: Tensor, index: Tensor, dim: int, batch_dims: int) -> Tensor:
    """Read one place for each row of a batch, along the last dimension of x or of its rows."""
    if dim != batch_dims or batch_dims != x.rank - 1 or index.rank != x.rank:
        raise Unsupported(
            f"gathering {list(index.shape)} places of {list(x.shape)} by {batch_dims} batch dims; "
            "only one dimension after them is read"
        )
    values = framework_order(ctx.g, x), framework_order(ctx.g, index)
    return plain(ctx.g.take_along(*values, axis=dim))


@tf_op("OneHot", static=(1,))
def one_hot(
    ctx: TfContext, index: Tensor, depth: np.ndarray, on: Tensor, off: Tensor, *, axis: int = -1
) -> Tensor:
    """One-hot encode each index along a new dimension, with values on and off."""
    count = integers(depth)[0]
    dim = axis % (index.rank + 1)
    line: Shape = tuple(count if other == dim else 1 for other in range(index.rank + 1))
    places = ctx.g.constant(np.arange(count, dtype=index.dtype.numpy).reshape(line))
    wide = reshape(ctx.g, index, (*index.shape[:dim], 1, *index.shape[dim:]))
    here = emit.elementwise(ctx.g, "eq", wide, plain(places))
    return emit.elementwise(ctx.g, "where", here, on, off)


@tf_op("MatrixBandPart", static=(1, 2))
def band_part(ctx: TfContext, x: Tensor, lower: np.ndarray, upper: np.ndarray) -> Tensor:
    """Keep a band around the diagonal of each matrix; a negative width keeps the whole side."""
    row, column = np.indices(x.shape[-2:])
    below, above = integers(lower)[0], integers(upper)[0]
    band = ((below < 0) | (row - column <= below)) & ((above < 0) | (column - row <= above))
    mask = plain(ctx.g.constant(band))
    return emit.elementwise(ctx.g, "where", mask, x, emit.scalar(ctx.g, 0, x.dtype))
