"""ONNX operators that read and write at data-dependent indices, and that sort."""

import math

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import scatter as emit_scatter
from pockengine.frontends.emit.index import wrapped, write_lines
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.order import best
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.onnx.ops.registry import OnnxContext, integers, onnx_op

REDUCTIONS = {"max": "amax", "min": "amin", "mul": "prod"}
"""ONNX's names of reductions at an index, and the shared names."""


@onnx_op("Gather")
def gather(ctx: OnnxContext, x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """Gather x at indices of a dimension."""
    places = wrapped(ctx.g, index, x.shape[axis])
    values = framework_order(ctx.g, x), framework_order(ctx.g, places)
    return plain(ctx.g.take(*values, axis=axis % x.rank))


@onnx_op("GatherElements")
def gather_elements(ctx: OnnxContext, x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """Read x along a dimension, at one place for each element of index."""
    return _along(ctx, x, wrapped(ctx.g, index, x.shape[axis]), axis)


def _along(ctx: OnnxContext, x: Tensor, places: Tensor, axis: int) -> Tensor:
    stop = list(places.shape)
    stop[axis] = x.shape[axis]
    cut = emit.slice_(ctx.g, x, start=(0,) * x.rank, stop=tuple(stop), step=(1,) * x.rank)
    values = framework_order(ctx.g, cut), framework_order(ctx.g, places)
    return plain(ctx.g.take_along(*values, axis=axis % x.rank))


def _merged(ctx: OnnxContext, index: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Convert index vectors (..., n) into n dimensions to one index into the merged dimensions."""
    flat = None
    for dim, size in enumerate(sizes):
        part = emit.slice_dim(ctx.g, index, -1, start=dim, stop=dim + 1)
        part = wrapped(ctx.g, emit.squeeze(ctx.g, part, [-1]), size)
        if flat is not None:
            part = emit.arithmetic(ctx.g, "add", emit.arithmetic(ctx.g, "mul", flat, size), part)
        flat = part
    assert flat is not None  # ONNX requires at least one dimension
    return flat


@onnx_op("GatherND")
def gather_nd(ctx: OnnxContext, x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Read slices of x at the places given by the vectors in the last dimension of index.

    The first `batch_dims` dimensions are batch dimensions of both.
    """
    g, count = ctx.g, index.shape[-1]
    batch, sizes = x.shape[:batch_dims], x.shape[batch_dims : batch_dims + count]
    tail = x.shape[batch_dims + count :]
    flat = _merged(ctx, index, sizes)
    shape = (*flat.shape, *tail)
    if batch:  # a slice of all of them is one line of x
        line = np.arange(math.prod(batch)).reshape((*batch, *(1,) * (flat.rank - batch_dims)))
        first = plain(g.constant((line * math.prod(sizes)).astype(flat.dtype.numpy)))
        flat = emit.arithmetic(g, "add", flat, first)
    lines = reshape(g, x, (math.prod((*batch, *sizes)), math.prod(tail)))
    places = reshape(g, flat, (flat.size,))
    taken = g.take(framework_order(g, lines), framework_order(g, places), axis=0)
    return reshape(g, plain(taken), shape)


@onnx_op("ScatterND")
def scatter_nd(
    ctx: OnnxContext, x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """Write or combine slices at the places given by the vectors in the last dimension of index."""
    g, count = ctx.g, index.shape[-1]
    width = math.prod(x.shape[count:])
    flat = _merged(ctx, index, x.shape[:count])
    places = reshape(g, flat, (flat.size,))
    lines = reshape(g, x, (math.prod(x.shape[:count]), width))
    new = reshape(g, updates, (flat.size, width))
    if reduction in ("none", "add"):
        written = write_lines(g, lines, 0, index=places, lines=new, accumulate=reduction == "add")
    else:
        wide = emit.broadcast(g, reshape(g, places, (flat.size, 1)), new.shape)
        written = _combined(ctx, lines, 0, index=wide, updates=new, reduction=reduction)
    return reshape(g, written, x.shape)


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(
    ctx: OnnxContext,
    x: Tensor,
    index: Tensor,
    updates: Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Tensor:
    """Write or combine each element at its index along a dimension."""
    places = wrapped(ctx.g, index, x.shape[axis])
    if reduction == "none":
        return emit_scatter.scatter(ctx.g, x, axis % x.rank, index=places, src=updates)
    if reduction == "add":
        return emit_scatter.scatter_add(ctx.g, x, axis % x.rank, index=places, src=updates)
    return _combined(ctx, x, axis % x.rank, index=places, updates=updates, reduction=reduction)


def _combined(
    ctx: OnnxContext, x: Tensor, dim: int, index: Tensor, updates: Tensor, reduction: str
) -> Tensor:
    if reduction not in REDUCTIONS:
        raise Unsupported(f"reduction {reduction!r}")
    how = REDUCTIONS[reduction]
    return emit_scatter.scatter_reduce(
        ctx.g, x, dim, index=index, src=updates, reduce=how, include_self=True
    )


@onnx_op("TopK", static=(1,))
def top_k(
    ctx: OnnxContext,
    x: Tensor,
    count: np.ndarray,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> list[Tensor]:
    """Take the largest or smallest along a dimension, best first, and their indices."""
    (k,) = integers(count) or [0]
    if not 0 < k <= x.shape[axis]:
        raise Unsupported(f"the best {k} of {x.shape[axis]}")
    return best(ctx.g, x, axis, count=k, descending=bool(largest))


@onnx_op("Compress", static=(1,))
def compress(
    ctx: OnnxContext, x: Tensor, condition: np.ndarray, *, axis: int | None = None
) -> Tensor:
    """Select the places of a dimension, or of the flattened tensor, where a constant mask is
    true."""
    if axis is None:
        x, axis = reshape(ctx.g, x, (x.size,)), 0
    (places,) = np.nonzero(np.ravel(condition)[: x.shape[axis]])
    if not places.size:
        raise Unsupported("a mask that keeps nothing")
    return plain(ctx.g.take(framework_order(ctx.g, x), ctx.g.constant(places), axis=axis % x.rank))


@onnx_op("ReverseSequence", static=(1,))
def reverse_sequence(
    ctx: OnnxContext, x: Tensor, lengths: np.ndarray, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """Reverse each sequence up to its constant length."""
    time, counts = x.shape[time_axis], integers(lengths) or []
    order = np.arange(time)
    rows = [np.concatenate([order[:n][::-1], order[n:]]) for n in counts]
    shape = [1] * x.rank
    shape[batch_axis], shape[time_axis] = len(counts), time
    table = np.stack(rows) if batch_axis < time_axis else np.stack(rows, 1)
    index = np.broadcast_to(table.reshape(shape), x.shape).astype(np.int64)
    return _along(ctx, x, plain(ctx.g.constant(index)), time_axis)
