"""Cumulative operations along a line: maxima, minima, or any associative combination.

After k rounds each element has the best of the last 2^k elements (Hillis and Steele, Data parallel
algorithms, 1986). This finds the indices, at which the values are then read: the gradient flows to
one element each, as in PyTorch.
"""

from collections.abc import Callable

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape

is_nan = emitter("is_nan")

Combine = Callable[[Builder, Tensor, Tensor], Tensor]
"""An associative operation of two tensors."""


def cumsum(g: Builder, x: Tensor, dim: int, *, exclusive: bool, reverse: bool) -> Tensor:
    """Cumulative sum along a dimension, optionally from the end, or exclusive."""
    if exclusive and x.shape[dim] == 1:
        return Tensor(g.constant(np.zeros(x.value.shape, x.dtype.numpy)), x.layout)
    y = Tensor(g.cumsum(x.value, axis=x.axis(dim), reverse=reverse), x.layout)
    if not exclusive:
        return y
    low, high = [0] * x.rank, [0] * x.rank
    ahead, behind = (low, high) if reverse else (high, low)
    ahead[dim], behind[dim] = -1, 1
    return emit.pad(g, y, tuple(low), tuple(high), value=0.0)


def best_so_far(g: Builder, x: Tensor, dim: int, better: str) -> list[Tensor]:
    """Cumulative maximum or minimum; ties go to the last element, and NaN wins."""
    if not x.rank:
        line = best_so_far(g, reshape(g, x, (1,)), 0, better)
        return [reshape(g, part, ()) for part in line]
    dim %= x.rank
    dims = [axis for axis in range(x.rank) if axis != dim] + [dim]
    lines = permute(x, dims)
    places = _places(g, lines, better)
    values = plain(
        g.take_along(framework_order(g, lines), framework_order(g, places), axis=x.rank - 1)
    )
    back = [int(axis) for axis in np.argsort(dims)]
    return [permute(values, back), permute(places, back)]


def _places(g: Builder, lines: Tensor, better: str) -> Tensor:
    """Return the index of the cumulative best along the last dimension."""
    size = lines.shape[-1]
    best = emit.unary("stop_gradient")(g, lines) if lines.dtype is F32 else lines
    places = plain(g.constant(np.broadcast_to(np.arange(size), lines.shape).copy()))
    reach = 1
    while reach < size:
        earlier, later = (
            [emit.slice_dim(g, part, -1, *ends) for part in (best, places)]
            for ends in ((0, size - reach), (reach, size))
        )
        keeps = _keeps(g, better, earlier[0], later[0])
        best, places = (
            emit.concat(
                g,
                [emit.slice_dim(g, whole, -1, start=0, stop=reach), emit.choose(g, keeps, a, b)],
                -1,
            )
            for whole, a, b in zip((best, places), earlier, later, strict=True)
        )
        reach *= 2
    return places


def _keeps(g: Builder, better: str, earlier: Tensor, later: Tensor) -> Tensor:
    """Return where the earlier element remains the best."""
    ahead = emit.arithmetic(g, better, earlier, later)
    if earlier.dtype is not F32:
        return ahead
    number = emit.elementwise(g, "eq", later, later)
    lone = emit.elementwise(g, "logical_and", is_nan(g, earlier), number)
    return emit.elementwise(g, "logical_or", ahead, lone)


def associative_scan(g: Builder, x: Tensor, dim: int, combine: Combine) -> Tensor:
    """Combine all elements up to each one, in as few rounds as a tree has levels.

    Neighbors are combined first, as JAX's function of this name does: so its gradient is JAX's too
    where elements tie.
    """
    size = x.shape[dim]
    if size < 2:
        return x

    def every_second(part: Tensor, start: int, stop: int) -> Tensor:
        return emit.slice_dim(g, part, dim, start=start, stop=stop, step=2)

    pairs = combine(g, every_second(x, 0, size - 1), every_second(x, 1, size))
    odd = associative_scan(g, pairs, dim, combine)
    first, count = emit.slice_dim(g, x, dim, start=0, stop=1), odd.shape[dim]
    even = first
    if size > 2:
        before = emit.slice_dim(g, odd, dim, start=0, stop=(size - 1) // 2)
        even = emit.concat(g, [first, combine(g, before, every_second(x, 2, size))], dim)
    return _interleaved(g, even, odd, dim=dim, count=count)


def log_add(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """log(exp(a) + exp(b)), from the larger one on; between equal infinities is no gap."""
    top = emit.elementwise(g, "maximum", a, b)
    gap = emit.unary("abs")(g, emit.elementwise(g, "sub", a, b))
    gap = emit.choose(g, emit.elementwise(g, "eq", a, b), 0.0, gap)
    more = emit.unary("log1p")(g, emit.unary("exp")(g, emit.unary("neg")(g, gap)))
    return emit.elementwise(g, "add", top, more)


def _interleaved(g: Builder, even: Tensor, odd: Tensor, dim: int, count: int) -> Tensor:
    """Interleave the elements of both; `even` may have one more than `odd` has."""
    lead, tail = odd.shape[:dim], odd.shape[dim + 1 :]
    halves = [
        reshape(g, emit.slice_dim(g, part, dim, start=0, stop=count), (*lead, count, 1, *tail))
        for part in (even, odd)
    ]
    whole = reshape(g, emit.concat(g, halves, dim + 1), (*lead, 2 * count, *tail))
    if even.shape[dim] == count:
        return whole
    return emit.concat(g, [whole, emit.slice_dim(g, even, dim, start=count, stop=count + 1)], dim)
