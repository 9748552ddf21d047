"""ATen operators that write or combine at an index for each element of a source."""

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit import scatter as emit_scatter
from pockengine.frontends.emit.index import wrapped
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("scatter_add.default")
def scatter_add(ctx: AtenContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add each element of src that has an index to x at that place of a dimension."""
    return emit_scatter.scatter_add(ctx.g, x, dim, index=index, src=src)


@aten("scatter.src", "scatter.value")
def scatter(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | None = None,
    value: Number | None = None,
) -> Tensor:
    """Write each element of src, or one number, at its place of a dimension; the last write
    wins."""
    return emit_scatter.scatter(
        ctx.g, x, dim, index=index, src=(value or 0) if src is None else src
    )


@aten("scatter_reduce.two")
def scatter_reduce(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Combine the sources at each position of a dimension with the previous element."""
    return emit_scatter.scatter_reduce(
        ctx.g, x, dim, index=index, src=src, reduce=reduce, include_self=include_self
    )


@aten("index_reduce.default")
def index_reduce(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Combine slices at places of a dimension."""
    shape = [source.shape[axis] if axis == dim % x.rank else 1 for axis in range(x.rank)]
    wide = emit.broadcast(ctx.g, reshape(ctx.g, index, tuple(shape)), source.shape)
    return scatter_reduce(
        ctx, x, dim, index=wide, src=source, reduce=reduce, include_self=include_self
    )


@aten("take_along_dim.default")
def take_along_dim(ctx: AtenContext, x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Read x at one place for each element; the other dimensions are broadcast."""
    if dim is None:
        x, indices, dim = reshape(ctx.g, x, (x.size,)), reshape(ctx.g, indices, (indices.size,)), 0
    dim %= x.rank
    shapes = [list(tensor.shape) for tensor in (x, indices)]
    sizes = np.broadcast_shapes(*([*shape[:dim], 1, *shape[dim + 1 :]] for shape in shapes))
    wide = []
    for tensor, shape in zip((x, wrapped(ctx.g, indices, x.shape[dim])), shapes, strict=True):
        target = tuple(shape[axis] if axis == dim else int(n) for axis, n in enumerate(sizes))
        wide.append(framework_order(ctx.g, emit.broadcast(ctx.g, tensor, target)))
    return plain(ctx.g.take_along(*wide, axis=dim))
