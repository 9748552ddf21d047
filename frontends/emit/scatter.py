"""Writing or combining at an index for each element of a source."""

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit.index import last_writers, only_last
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape

MOST_CANDIDATES = 1 << 20
"""For extremes and products each place looks at each source along its line: this many in all."""

REDUCTIONS = {"amax": "reduce_max", "amin": "reduce_min", "prod": "reduce_prod"}
NEUTRAL = {"amax": -np.inf, "amin": np.inf, "prod": 1.0}


def scatter_add(g: Builder, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add each element of src that has an index to x at that place of a dimension."""
    if not x.rank:
        line = [reshape(g, tensor, (1,)) for tensor in (x, index, src)]
        return reshape(g, scatter_add(g, line[0], 0, *line[1:]), ())
    return emit.arithmetic(g, "add", x, _added(g, x, dim, index=index, src=_cut(g, src, index)))


def _cut(g: Builder, src: Tensor, index: Tensor) -> Tensor:
    """Keep only the elements with an index."""
    return emit.slice_(g, src, start=(0,) * src.rank, stop=index.shape, step=(1,) * src.rank)


def _added(g: Builder, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add up src at its places in a tensor of zeros like x."""
    if src.dtype is not F32:
        raise Unsupported(f"writing at indices of {src.dtype.value}; convert to float32 first")
    added = g.take_along_dx(
        framework_order(g, src),
        framework_order(g, index),
        axis=dim % x.rank,
        input_shape=x.shape,
    )
    return plain(added)


def _hits(g: Builder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Count how many sources each place of x has."""
    ones = plain(g.constant(np.ones(index.shape, np.float32)))
    return _added(g, x, dim, index=index, src=ones)


def scatter(g: Builder, x: Tensor, dim: int, index: Tensor, src: Tensor | Number) -> Tensor:
    """Write each element of src, or one number, at its place of a dimension; the last write
    wins."""
    if not x.rank:
        line = src if not isinstance(src, Tensor) else reshape(g, src, (1,))
        return reshape(
            g, scatter(g, reshape(g, x, (1,)), 0, index=reshape(g, index, (1,)), src=line), ()
        )
    if x.dtype is BOOL:
        numbers = emit.cast(g, src, F32) if isinstance(src, Tensor) else float(bool(src))
        written = scatter(g, emit.cast(g, x, F32), dim, index=index, src=numbers)
        return emit.arithmetic(g, "gt", written, 0.5)
    hit = emit.arithmetic(g, "gt", _hits(g, x, dim, index), 0.0)
    if not isinstance(src, Tensor):
        new = emit.scalar(g, src, x.dtype)
    else:
        src, dims = _cut(g, src, index), _last(x.rank, dim)
        last = last_writers(g, permute(index, dims))
        if last is not None:
            src = only_last(g, permute(last, dims), src)
        new = _added(g, x, dim, index=index, src=src)
    return emit.elementwise(g, "where", hit, new, x)


def _last(rank: int, dim: int) -> tuple[int, ...]:
    """Swap a dimension with the last one."""
    dims = list(range(rank))
    dims[dim], dims[-1] = dims[-1], dims[dim]
    return tuple(dims)


def scatter_reduce(
    g: Builder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Combine the sources at each position of a dimension with the previous element."""
    if not x.rank:
        line, places, values = (reshape(g, tensor, (1,)) for tensor in (x, index, src))
        return reshape(
            g,
            scatter_reduce(
                g, line, 0, index=places, src=values, reduce=reduce, include_self=include_self
            ),
            (),
        )
    src = _cut(g, src, index)
    hits = _hits(g, x, dim, index)
    if reduce in REDUCTIONS:
        combined = _extreme(
            g, x, dim, index=index, src=src, reduce=reduce, include_self=include_self
        )
    else:
        combined = _added(g, x, dim, index=index, src=src)
        if include_self:
            combined = emit.arithmetic(g, "add", x, combined)
        if reduce == "mean":
            count = emit.arithmetic(g, "add", hits, 1.0) if include_self else hits
            one = emit.scalar(g, 1.0, F32)
            some = emit.arithmetic(g, "gt", count, 0.0)
            safe = emit.elementwise(g, "where", some, count, one)
            combined = emit.arithmetic(g, "div", combined, safe)
    if include_self:
        return combined
    return emit.elementwise(g, "where", emit.arithmetic(g, "gt", hits, 0.0), combined, x)


def _extreme(
    g: Builder,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """Reduce over all sources of a line; those of other positions are replaced by the neutral
    element.
    """
    dims = _last(x.rank, dim)
    size, count = x.shape[dim], index.shape[dim]
    if x.size * count > MOST_CANDIDATES or x.dtype is not F32:
        raise Unsupported(f"scatter_reduce by {reduce} of this many elements; use another")
    index, src = permute(index, dims), permute(src, dims)
    lead = index.shape[:-1]
    own = plain(g.constant(np.arange(size, dtype=index.dtype.numpy).reshape(size, 1)))
    here = emit.arithmetic(g, "eq", reshape(g, index, (*lead, 1, count)), own)
    neutral = emit.scalar(g, float(NEUTRAL[reduce]), F32)
    candidates = emit.elementwise(g, "where", here, reshape(g, src, (*lead, 1, count)), neutral)
    before = permute(x, dims)
    before = emit.slice_(g, before, start=(0,) * x.rank, stop=(*lead, size), step=(1,) * x.rank)
    if include_self:
        candidates = emit.concat(g, [candidates, reshape(g, before, (*lead, size, 1))], -1)
    reduced = emit.reduce(g, REDUCTIONS[reduce], candidates, [-1], keepdims=False)
    return _filled(g, permute(reduced, dims), x)


def _filled(g: Builder, corner: Tensor, x: Tensor) -> Tensor:
    """Write the result to the corner of x that the index covers."""
    if corner.shape == x.shape:
        return corner
    for dim in range(x.rank):
        if corner.shape[dim] < x.shape[dim]:
            start, stop = [0] * x.rank, [*corner.shape[: dim + 1], *x.shape[dim + 1 :]]
            start[dim], stop[dim] = corner.shape[dim], x.shape[dim]
            stop[dim + 1 :] = corner.shape[dim + 1 :]
            tail = emit.slice_(g, x, start=tuple(start), stop=tuple(stop), step=(1,) * x.rank)
            corner = emit.concat(g, [corner, tail], dim)
    return corner
