"""ATen operators that read and write at tensors of indices in several dimensions.

Indices are merged into one along one dimension. If a place is written twice, the last write wins,
as in eager PyTorch on a CPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pockengine.compiler.ir import BOOL, F32, I32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit.index import wrapped, write_lines
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@dataclass(frozen=True)
class MergedIndex:
    """Where `index` points in `x`: along dimension `dim`, into which the indexed ones are merged.

    `order` is the permutation that brought these together, `shape` what x had then.
    """

    x: Tensor
    index: Tensor
    dim: int
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def restored(self, ctx: AtenContext, x: Tensor) -> Tensor:
        """Restore the original dimensions of x in a tensor of x's shape."""
        back = tuple(int(dim) for dim in np.argsort(self.order))
        return permute(reshape(ctx.g, x, self.shape), back)


def _places(ctx: AtenContext, x: Tensor, indices: Sequence[Tensor | None]) -> MergedIndex:
    indexed = {dim: index for dim, index in enumerate(indices) if index is not None}
    if any(index.dtype not in (I32, I64) for index in indexed.values()):
        raise Unsupported("indexing by a mask, whose result has no fixed size; use where")
    dims = sorted(indexed)
    together = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if together else 0
    others = [dim for dim in range(x.rank) if dim not in indexed]
    order = (*others[:at], *dims, *others[at:])
    moved = permute(x, order)
    merged = math.prod(x.shape[dim] for dim in dims)
    index = None
    for dim in dims:
        part = wrapped(ctx.g, indexed[dim], x.shape[dim])
        if index is not None:
            part = emit.arithmetic(
                ctx.g, "add", emit.arithmetic(ctx.g, "mul", index, x.shape[dim]), part
            )
        index = part
    assert index is not None  # ATen has at least one
    shape = moved.shape
    lines = reshape(ctx.g, moved, (*shape[:at], merged, *shape[at + len(dims) :]))
    return MergedIndex(lines, index, at, order=order, shape=shape)


@aten("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(ctx: AtenContext, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[..., index, ...] with tensors of indices; negative ones count from the end."""
    places = _places(ctx, x, indices)
    values = framework_order(ctx.g, places.x), framework_order(ctx.g, places.index)
    return plain(ctx.g.take(*values, axis=places.dim))


@aten("take.default")
def take(ctx: AtenContext, x: Tensor, index: Tensor) -> Tensor:
    """Read the flattened tensor."""
    return index_tensor(ctx, reshape(ctx.g, x, (x.size,)), [index])


@aten("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default")
def index_put(
    ctx: AtenContext,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool,
    unsafe: bool = False,
) -> Tensor:
    """x[..., index, ...] = values, or += values."""
    indices = [part for index in indices for part in _known_places(ctx, index)]
    masks = [dim for dim, index in enumerate(indices) if index is not None and index.dtype is BOOL]
    if masks and len(masks) == sum(index is not None for index in indices) == 1:
        return _put_where(
            ctx, x, masks[0], mask=indices[masks[0]], values=values, accumulate=accumulate
        )
    places = _places(ctx, x, indices)
    lead, tail = places.x.shape[: places.dim], places.x.shape[places.dim + 1 :]
    whole = emit.broadcast(ctx.g, values, (*lead, *places.index.shape, *tail))
    lines = reshape(ctx.g, whole, (*lead, places.index.size, *tail))
    index = reshape(ctx.g, places.index, (places.index.size,))
    written = write_lines(
        ctx.g, places.x, places.dim, index=index, lines=lines, accumulate=accumulate
    )
    return places.restored(ctx, written)


def _known_places(ctx: AtenContext, index: Tensor | None) -> list[Tensor | None]:
    """Return an index unchanged; for a constant mask return the positions where it is true."""
    if index is None or index.dtype is not BOOL:
        return [index]
    mask = ctx.g.graph.constants.get(index.value)
    if mask is None:
        return [index]
    places = np.nonzero(mask.transpose(np.argsort(index.layout)))
    return [plain(ctx.g.constant(part.astype(np.int64))) for part in places]


def _put_where(
    ctx: AtenContext, x: Tensor, dim: int, mask: Tensor | None, values: Tensor, *, accumulate: bool
) -> Tensor:
    """Write or add values that are equal at all places where a mask, from `dim` on, is true."""
    assert mask is not None
    g, after = ctx.g, x.rank - dim - mask.rank
    if values.rank > after:
        shape, at = values.shape, values.rank - after - 1
        if shape[at] != 1:
            raise Unsupported("writing a value for each place of a mask; use where, or one value")
        values = reshape(g, values, (*shape[:at], *(1,) * mask.rank, *shape[at + 1 :]))
    here = reshape(g, mask, (*mask.shape, *(1,) * after))
    values = emit.cast(g, values, x.dtype)
    if accumulate:
        values = emit.arithmetic(g, "add", x, values)
    return emit.elementwise(g, "where", here, emit.broadcast(g, values, x.shape), x)


@aten("fill_diagonal.default")
def fill_diagonal(ctx: AtenContext, x: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Write one number to the diagonal of a matrix, or of a cube of any rank."""
    marked = torch.zeros(x.shape, dtype=torch.bool).fill_diagonal_(True, wrap=wrap)
    here = plain(ctx.g.constant(marked.numpy()))
    number = emit.scalar(ctx.g, np.asarray(fill_value, x.dtype.numpy).item(), x.dtype)
    return emit.elementwise(ctx.g, "where", here, number, x)


@aten("index_copy.default")
def index_copy(ctx: AtenContext, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Write slices at places of a dimension."""
    return _along(ctx, x, dim, index=index, source=source, accumulate=False)


@aten("index_add.default")
def index_add(
    ctx: AtenContext, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number
) -> Tensor:
    """Add alpha times slices at places of a dimension."""
    return _along(
        ctx, x, dim, index=index, source=emit.weighted(ctx.g, source, alpha), accumulate=True
    )


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(
    ctx: AtenContext, x: Tensor, dim: int, index: Tensor, value: Tensor | Number
) -> Tensor:
    """Write one number at places of a dimension; places may repeat."""
    if not isinstance(value, Tensor):
        value = emit.scalar(ctx.g, float(value), F32)
    size = x.shape[dim] if x.rank else 1
    places = wrapped(ctx.g, reshape(ctx.g, index, (index.size, 1)), size)
    numbers = plain(ctx.g.constant(np.arange(size, dtype=places.dtype.numpy)[None]))
    named = emit.cast(ctx.g, emit.arithmetic(ctx.g, "eq", places, numbers), F32)
    hit = emit.arithmetic(
        ctx.g, "gt", emit.reduce(ctx.g, "reduce_max", named, dims=[0], keepdims=False), 0.0
    )
    shape = [size if axis == dim % x.rank else 1 for axis in range(x.rank)]
    hit = reshape(ctx.g, hit, tuple(shape))
    return emit.elementwise(ctx.g, "where", hit, emit.cast(ctx.g, value, x.dtype), x)


def _along(
    ctx: AtenContext, x: Tensor, dim: int, index: Tensor, source: Tensor, *, accumulate: bool
) -> Tensor:
    shape = x.shape
    if not x.rank:
        x, source = reshape(ctx.g, x, (1,)), reshape(ctx.g, source, (1,))
    dim %= x.rank
    places = wrapped(ctx.g, reshape(ctx.g, index, (index.size,)), x.shape[dim])
    written = write_lines(ctx.g, x, dim, index=places, lines=source, accumulate=accumulate)
    return reshape(ctx.g, written, shape)


@aten("put.default")
def put(ctx: AtenContext, x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """Write or add numbers at places of the flattened tensor."""
    flat, lines = reshape(ctx.g, x, (x.size,)), reshape(ctx.g, source, (source.size,))
    places = wrapped(ctx.g, reshape(ctx.g, index, (index.size,)), x.size)
    written = write_lines(ctx.g, flat, 0, index=places, lines=lines, accumulate=accumulate)
    return reshape(ctx.g, written, x.shape)
