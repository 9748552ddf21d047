"""The best of a line so far, for each of its elements.

After k rounds each element knows the best of the 2^k elements that end with it (Hillis and Steele,
Data parallel algorithms, 1986). Places are found so, and the values are read from them: the
gradient flows to one element each, as in PyTorch.
"""

import numpy as np

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape

is_nan = emitter("is_nan")


def best_so_far(g: Builder, x: Tensor, dim: int, better: str) -> list[Tensor]:
    """Of equal ones the last is taken, and NaN is better than all numbers."""
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
    """Return where the best so far is along the last dimension."""
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
                g, [emit.slice_dim(g, whole, -1, 0, reach), emit.choose(g, keeps, a, b)], -1
            )
            for whole, a, b in zip((best, places), earlier, later, strict=True)
        )
        reach *= 2
    return places


def _keeps(g: Builder, better: str, earlier: Tensor, later: Tensor) -> Tensor:
    """Return where the earlier one stays the best."""
    ahead = emit.arithmetic(g, better, earlier, later)
    if earlier.dtype is not F32:
        return ahead
    number = emit.elementwise(g, "eq", later, later)
    lone = emit.elementwise(g, "logical_and", is_nan(g, earlier), number)
    return emit.elementwise(g, "logical_or", ahead, lone)
