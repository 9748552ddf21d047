"""ATen operators that write or combine at an index for each element of a source."""

import numpy as np

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit.index import last_writers
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.torch.aten.indexing import only_last, wrapped
from pockengine.frontends.torch.aten.registry import AtenContext, aten

MOST_CANDIDATES = 1 << 20
"""For extremes and products each place looks at each source along its line: so many in all."""

REDUCTIONS = {"amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod"}
NEUTRAL = {"amax": -np.inf, "amin": np.inf, "prod": 1.0}


@aten("scatter_add.default")
def scatter_add(ctx: AtenContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add each element of src that has an index to x at that place of a dimension."""
    if not x.rank:
        line = [reshape(ctx.g, tensor, (1,)) for tensor in (x, index, src)]
        return reshape(ctx.g, scatter_add(ctx, line[0], 0, *line[1:]), ())
    return emit.arithmetic(ctx.g, "add", x, _added(ctx, x, dim, index, _cut(ctx, src, index)))


def _cut(ctx: AtenContext, src: Tensor, index: Tensor) -> Tensor:
    """Leave what has an index."""
    return emit.slice_(ctx.g, src, (0,) * src.rank, index.shape, (1,) * src.rank)


def _added(ctx: AtenContext, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add up src at its places in a tensor of zeros like x."""
    if x.dtype is not F32:
        raise Unsupported(f"writing at indices of {x.dtype.value}; convert to float32 first")
    added = ctx.g.take_along_dx(
        framework_order(ctx.g, src),
        framework_order(ctx.g, index),
        axis=dim % x.rank,
        input_shape=x.shape,
    )
    return plain(added)


def _hits(ctx: AtenContext, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Count how many sources each place of x has."""
    ones = plain(ctx.g.constant(np.ones(index.shape, np.float32)))
    return _added(ctx, x, dim, index, ones)


@aten("scatter.src", "scatter.value")
def scatter(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | None = None,
    value: Number | None = None,
) -> Tensor:
    """Put each element of src, or one number, at its place of a dimension; the last one wins."""
    if not x.rank:
        line = [
            None if tensor is None else reshape(ctx.g, tensor, (1,)) for tensor in (x, index, src)
        ]
        return reshape(ctx.g, scatter(ctx, line[0], 0, line[1], line[2], value), ())
    hit = emit.arithmetic(ctx.g, "gt", _hits(ctx, x, dim, index), 0.0)
    if src is None:
        new = emit.scalar(ctx.g, float(value or 0), F32)
    else:
        src, dims = _cut(ctx, src, index), _last(x.rank, dim)
        last = last_writers(ctx.g, permute(index, dims))
        if last is not None:
            src = only_last(ctx, permute(last, dims), src)
        new = _added(ctx, x, dim, index, src)
    return emit.elementwise(ctx.g, "where", hit, new, x)


def _last(rank: int, dim: int) -> tuple[int, ...]:
    """Swap a dimension with the last one."""
    dims = list(range(rank))
    dims[dim], dims[-1] = dims[-1], dims[dim]
    return tuple(dims)


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
    """Combine the sources at each place of a dimension, and what stood there before."""
    if not x.rank:
        line = [reshape(ctx.g, tensor, (1,)) for tensor in (x, index, src)]
        return reshape(ctx.g, scatter_reduce(ctx, line[0], 0, *line[1:], reduce, include_self), ())
    src = _cut(ctx, src, index)
    hits = _hits(ctx, x, dim, index)
    if reduce in REDUCTIONS:
        combined = _extreme(ctx, x, dim, index, src, reduce, include_self)
    else:
        combined = _added(ctx, x, dim, index, src)
        if include_self:
            combined = emit.arithmetic(ctx.g, "add", x, combined)
        if reduce == "mean":
            count = emit.arithmetic(ctx.g, "add", hits, 1.0) if include_self else hits
            one = emit.scalar(ctx.g, 1.0, F32)
            some = emit.arithmetic(ctx.g, "gt", count, 0.0)
            safe = emit.elementwise(ctx.g, "where", some, count, one)
            combined = emit.arithmetic(ctx.g, "div", combined, safe)
    if include_self:
        return combined
    return emit.elementwise(ctx.g, "where", emit.arithmetic(ctx.g, "gt", hits, 0.0), combined, x)


def _extreme(
    ctx: AtenContext,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Reduce over all sources of a line, those of other places replaced by what does nothing."""
    g, dims = ctx.g, _last(x.rank, dim)
    size, count = x.shape[dim], index.shape[dim]
    if x.size * count > MOST_CANDIDATES or x.dtype is not F32:
        raise Unsupported(f"scatter_reduce by {reduce} of so many elements; reduce otherwise")
    index, src = permute(index, dims), permute(src, dims)
    lead = index.shape[:-1]
    own = plain(g.constant(np.arange(size, dtype=index.dtype.numpy).reshape(size, 1)))
    here = emit.arithmetic(g, "eq", reshape(g, index, (*lead, 1, count)), own)
    neutral = emit.scalar(g, float(NEUTRAL[reduce]), F32)
    candidates = emit.elementwise(g, "where", here, reshape(g, src, (*lead, 1, count)), neutral)
    before = permute(x, dims)
    before = emit.slice_(g, before, (0,) * x.rank, (*lead, size), (1,) * x.rank)
    if include_self:
        candidates = emit.concat(g, [candidates, reshape(g, before, (*lead, size, 1))], -1)
    reduced = emit.reduce(g, REDUCTIONS[reduce], candidates, [-1], keepdims=False)
    return _filled(ctx, permute(reduced, dims), x)


def _filled(ctx: AtenContext, corner: Tensor, x: Tensor) -> Tensor:
    """Put what was found into the corner of x that the index covers."""
    if corner.shape == x.shape:
        return corner
    for dim in range(x.rank):
        if corner.shape[dim] < x.shape[dim]:
            start, stop = [0] * x.rank, [*corner.shape[: dim + 1], *x.shape[dim + 1 :]]
            start[dim], stop[dim] = corner.shape[dim], x.shape[dim]
            stop[dim + 1 :] = corner.shape[dim + 1 :]
            rest = emit.slice_(ctx.g, x, tuple(start), tuple(stop), (1,) * x.rank)
            corner = emit.concat(ctx.g, [corner, rest], dim)
    return corner


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
    return scatter_reduce(ctx, x, dim, wide, source, reduce, include_self)


@aten("take_along_dim.default")
def take_along_dim(ctx: AtenContext, x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Read x at places that each element gives for itself, the other dimensions broadcast."""
    if dim is None:
        x, indices, dim = reshape(ctx.g, x, (x.size,)), reshape(ctx.g, indices, (indices.size,)), 0
    dim %= x.rank
    shapes = [list(tensor.shape) for tensor in (x, indices)]
    sizes = np.broadcast_shapes(*([*shape[:dim], 1, *shape[dim + 1 :]] for shape in shapes))
    wide = []
    for tensor, shape in zip((x, wrapped(ctx, indices, x.shape[dim])), shapes, strict=True):
        target = tuple(shape[axis] if axis == dim else int(n) for axis, n in enumerate(sizes))
        wide.append(framework_order(ctx.g, emit.broadcast(ctx.g, tensor, target)))
    return plain(ctx.g.take_along(*wide, axis=dim))
