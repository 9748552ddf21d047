"""ATen operators that sort: by the rank of each element, which is how many come before it.

Each element is compared with each of its line, which suits lines of up to some thousands: what
small models sort are scores of a few candidates. NaN counts as the largest.
"""

import numpy as np

from pockengine.compiler.ir import F32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten

LONGEST = 4096

is_nan = emitter("is_nan")


@aten("sort.default", "sort.stable")
def sort(
    ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool | None = None
) -> list[Tensor]:
    """Sort along a dimension; equal elements keep their order."""
    return _best(ctx, x, dim, x.shape[dim] if x.rank else 1, descending)


@aten("argsort.default", "argsort.stable")
def argsort(ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool = True) -> Tensor:
    """Return the indices that sort a dimension."""
    return sort(ctx, x, dim, descending)[1]


@aten("topk.default")
def topk(
    ctx: AtenContext, x: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> list[Tensor]:
    """Take the k largest or smallest along a dimension, the best first."""
    return _best(ctx, x, dim, k, largest)


@aten("kthvalue.default")
def kthvalue(ctx: AtenContext, x: Tensor, k: int, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the k-th smallest along a dimension, and where it is."""
    if not x.rank:
        return _best(ctx, x, 0, 1, False)
    kept = [emit.slice_dim(ctx.g, part, dim, k - 1, k) for part in _best(ctx, x, dim, k, False)]
    return kept if keepdim else [emit.squeeze(ctx.g, part, [dim]) for part in kept]


@aten("median.dim")
def median_dim(ctx: AtenContext, x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the median along a dimension, the lower one of two, and where it is; NaN if any is."""
    size = x.shape[dim] if x.rank else 1
    middle, place = kthvalue(ctx, x, (size + 1) // 2, dim, keepdim)
    if x.dtype is not F32:
        return [middle, place]
    last, nan_place = kthvalue(ctx, x, size, dim, keepdim)  # NaN, if there is any
    nan = is_nan(ctx.g, last)
    return [emit.choose(ctx.g, nan, *pair) for pair in ((last, middle), (nan_place, place))]


@aten("median.default")
def median(ctx: AtenContext, x: Tensor) -> Tensor:
    """Take the median of all elements, the lower one of two; those equal to it share a gradient."""
    g = ctx.g
    middle = median_dim(ctx, reshape(g, x, (x.size,)), 0, keepdim=False)[0]
    if x.dtype is not F32:
        return middle
    hit = emit.elementwise(g, "eq", x, emit.unary("stop_gradient")(g, middle))
    total, count = (
        emit.reduce(g, "reduce_sum", emit.choose(g, hit, addend, 0.0), (), False)
        for addend in (x, 1.0)
    )
    return emit.elementwise(g, "div", total, count)


def _best(ctx: AtenContext, x: Tensor, dim: int, count: int, descending: bool) -> list[Tensor]:
    """Return the first `count` elements of a sorted dimension, and their indices."""
    g = ctx.g
    if not x.rank:
        line = _best(ctx, reshape(g, x, (1,)), 0, 1, descending)
        return [reshape(g, part, ()) for part in line]
    dim %= x.rank
    dims = [axis for axis in range(x.rank) if axis != dim] + [dim]
    lines = permute(x, dims)
    order = _order(ctx, lines, descending)
    order = emit.slice_dim(g, order, -1, 0, count)
    values = plain(
        g.take_along(framework_order(g, lines), framework_order(g, order), axis=x.rank - 1)
    )
    back = [int(axis) for axis in np.argsort(dims)]
    return [permute(values, back), permute(order, back)]


def _order(ctx: AtenContext, x: Tensor, descending: bool) -> Tensor:
    """Return the indices that sort the last dimension."""
    g, size = ctx.g, x.shape[-1]
    if size > LONGEST:
        raise Unsupported(f"sorting {size} elements; {LONGEST} are the most")
    own, others = reshape(g, x, (*x.shape, 1)), reshape(g, x, (*x.shape[:-1], 1, size))
    more, less = (others, own) if descending else (own, others)
    ahead = emit.arithmetic(g, "gt", more, less)
    equal = emit.arithmetic(g, "eq", others, own)
    if x.dtype is F32:  # NaN is larger than all numbers
        number = emit.elementwise(g, "eq", less, less)
        lone = emit.elementwise(g, "logical_and", is_nan(g, more), number)
        both = emit.elementwise(g, "logical_and", *(is_nan(g, x) for x in (own, others)))
        ahead = emit.elementwise(g, "logical_or", ahead, lone)
        equal = emit.elementwise(g, "logical_or", equal, both)
    earlier = plain(g.constant(np.tri(size, k=-1, dtype=np.bool_)))
    tied = emit.arithmetic(g, "logical_and", equal, earlier)
    before = emit.cast(g, emit.arithmetic(g, "logical_or", ahead, tied), F32)
    rank = emit.cast(g, emit.reduce(g, "reduce_sum", before, [-1], keepdims=False), I64)
    numbers = np.broadcast_to(np.arange(size, dtype=np.float32), x.shape)
    placed = g.take_along_dx(
        g.constant(numbers), framework_order(g, rank), axis=x.rank - 1, input_shape=x.shape
    )
    return emit.cast(g, plain(placed), I64)
