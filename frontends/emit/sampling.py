"""Interpolated reads of pictures and volumes, in our ops."""

import enum
import itertools
import math
from collections.abc import Sequence

import numpy as np

from pockengine.compiler.ir import F32, I64, Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, plain, reshape, stored


class Between(enum.Enum):
    """Interpolation mode between elements."""

    LINEAR = 0
    NEAREST = 1
    CUBIC = 2


class Outside(enum.Enum):
    """Padding mode outside the border."""

    ZEROS = 0
    BORDER = 1
    REFLECTION = 2


Tap = tuple[Tensor, Tensor | None]
"""Integer positions, as floats, and their weights; None means weights of 1."""

CUBIC = -0.75
"""The slope of the cubic kernel, as in PyTorch."""


def sample(
    g: Builder, x: Tensor, grid: Tensor, between: Between, outside: Outside, *, corners: bool
) -> Tensor:
    """Read (N, C, ...) at a grid (N, ..., dims) of places from -1 to 1, the last dimension first.

    With `corners` -1 and 1 are the middles of the outermost elements, else their outer edges.
    """
    batch, channels, *sizes = x.shape
    shape = grid.shape[1:-1]
    taps = []
    for dim, size in reversed(list(enumerate(sizes))):
        place = emit.slice_dim(g, grid, -1, start=len(sizes) - 1 - dim, stop=len(sizes) - dim)
        place = reshape(g, place, (batch, math.prod(shape)))
        taps.append(
            _taps(
                g,
                _unscaled(g, place, size, corners),
                size,
                between=between,
                outside=outside,
                corners=corners,
            )
        )
    volume = math.prod(sizes)
    value = stored(g, x, (0, *range(2, x.rank), 1))
    rows = g.reshape(value, shape=(batch * volume, channels))
    start = plain(g.constant(np.arange(batch, dtype=np.int64)[:, None] * volume))
    total = read(g, rows, start, taps=taps, sizes=sizes[::-1], zeros=outside is Outside.ZEROS)
    result = g.reshape(total.value, shape=(batch, *shape, channels))
    return Tensor(result, (0, *range(2, x.rank), 1))


def read(
    g: Builder,
    rows: Value,
    start: Tensor,
    taps: Sequence[Sequence[Tap]],
    sizes: Sequence[int],
    *,
    zeros: bool,
) -> Tensor:
    """Add up the rows at each combination of taps, one list for each dimension, the last first.

    `start` is the row of each place's first element. With `zeros` elements outside are 0.
    """
    total: Tensor | None = None
    for combination in itertools.product(*taps):
        index, scale = start, 1
        share: Tensor | None = None
        for (place, part), size in zip(combination, sizes, strict=True):
            inside = Tensor(g.clamp(place.value, min=0.0, max=float(size - 1)), place.layout)
            step = emit.arithmetic(g, "mul", emit.cast(g, inside, I64), scale)
            index = emit.arithmetic(g, "add", index, step)
            if zeros:
                visible = emit.cast(g, emit.elementwise(g, "eq", inside, place), F32)
                part = visible if part is None else emit.arithmetic(g, "mul", part, visible)
            if part is not None:
                share = part if share is None else emit.arithmetic(g, "mul", share, part)
            scale *= size
        term = plain(g.take(rows, index.value, axis=0))
        if share is not None:
            term = emit.arithmetic(g, "mul", term, reshape(g, share, (*share.shape, 1)))
        total = term if total is None else emit.arithmetic(g, "add", total, term)
    assert total is not None
    return total


def linear_taps(g: Builder, place: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the two neighbors of places along one dimension, which may be outside."""
    low = emit.unary("floor")(g, place)
    share = emit.arithmetic(g, "sub", place, low)
    complement = emit.arithmetic(g, "sub", 1.0, share)
    return [(low, complement), (emit.arithmetic(g, "add", low, 1.0), share)]


def _unscaled(g: Builder, place: Tensor, size: int, corners: bool) -> Tensor:
    """Count places in elements, from the middle of the first one on."""
    if corners:
        return emit.weighted(g, emit.arithmetic(g, "add", place, 1.0), (size - 1) / 2)
    edges = emit.weighted(g, emit.arithmetic(g, "add", place, 1.0), float(size))
    return emit.weighted(g, emit.arithmetic(g, "sub", edges, 1.0), 0.5)


def _taps(
    g: Builder, place: Tensor, size: int, between: Between, outside: Outside, corners: bool
) -> list[Tap]:
    """Return the neighbors of places along one dimension."""
    if between is not Between.CUBIC:
        place = _moved_inside(g, place, size, outside=outside, corners=corners)
    if between is Between.NEAREST:
        return [(emit.unary("round")(g, place), None)]
    if between is Between.LINEAR:
        return [*linear_taps(g, place)]
    low = emit.unary("floor")(g, place)
    share = emit.arithmetic(g, "sub", place, low)
    places = (emit.arithmetic(g, "add", low, float(step)) for step in (-1, 0, 1, 2))
    moved = [_moved_inside(g, part, size, outside=outside, corners=corners) for part in places]
    return list(zip(moved, _cubic_shares(g, share), strict=True))


def _moved_inside(g: Builder, place: Tensor, size: int, outside: Outside, corners: bool) -> Tensor:
    """Move places to the border, or reflect them at it; on the border no gradient flows."""
    if outside is Outside.ZEROS:
        return place
    if outside is Outside.REFLECTION:
        place = _reflected(g, place, 0.0 if corners else -0.5, size - 1 if corners else size)
    return Tensor(g.hardtanh(place.value, min=0.0, max=float(size - 1)), place.layout)


def _reflected(g: Builder, place: Tensor, low: float, span: int) -> Tensor:
    """Fold places into low ... low + span."""
    if not span:
        return emit.weighted(g, place, 0.0)
    far = emit.unary("abs")(g, emit.arithmetic(g, "sub", place, low))
    folded = emit.arithmetic(g, "rem", far, 2.0 * span)
    back = emit.arithmetic(g, "sub", 2.0 * span, folded)
    return emit.arithmetic(g, "add", emit.arithmetic(g, "minimum", folded, back), low)


def _cubic_shares(g: Builder, t: Tensor) -> list[Tensor]:
    """Return the shares of the elements at -1, 0, 1 and 2 for a place t from 0 to 1."""
    complement = emit.arithmetic(g, "sub", 1.0, t)
    one = emit.arithmetic(g, "add", t, 1.0), emit.arithmetic(g, "add", complement, 1.0)
    near, far = [CUBIC + 2, -(CUBIC + 3), 0.0, 1.0], [CUBIC, -5 * CUBIC, 8 * CUBIC, -4 * CUBIC]
    pairs = ((one[0], far), (t, near), (complement, near), (one[1], far))
    return [_polynomial(g, x, factors) for x, factors in pairs]


def _polynomial(g: Builder, x: Tensor, factors: list[float]) -> Tensor:
    """Evaluate by Horner's rule, the highest power first."""
    first, *others = factors
    y = emit.weighted(g, x, first)
    for factor in others[:-1]:
        y = emit.arithmetic(g, "mul", emit.arithmetic(g, "add", y, factor), x)
    return emit.arithmetic(g, "add", y, others[-1])
