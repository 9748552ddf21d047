"""Sorting by the rank of each element: the number of elements before it.

Each element is compared with all others of its line, which suits lines up to some thousands: small
models sort the scores of a few candidates. NaN counts as the largest.
"""

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape

LONGEST = 4096

is_nan = emitter("is_nan")


def best(g: Builder, x: Tensor, dim: int, count: int, descending: bool) -> list[Tensor]:
    """Return the first `count` elements of a sorted dimension, and their indices."""
    if not x.rank:
        line = best(g, reshape(g, x, (1,)), 0, count=1, descending=descending)
        return [reshape(g, part, ()) for part in line]
    dim %= x.rank
    dims = [axis for axis in range(x.rank) if axis != dim] + [dim]
    lines = permute(x, dims)
    order = order_of(g, lines, descending)
    order = emit.slice_dim(g, order, -1, start=0, stop=count)
    values = plain(
        g.take_along(framework_order(g, lines), framework_order(g, order), axis=x.rank - 1)
    )
    back = [int(axis) for axis in np.argsort(dims)]
    return [permute(values, back), permute(order, back)]


def order_of(g: Builder, x: Tensor, descending: bool) -> Tensor:
    """Return the indices that sort the last dimension; equal elements keep their order."""
    size = x.shape[-1]
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
