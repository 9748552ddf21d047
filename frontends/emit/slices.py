"""Slices at positions that are data and must be in bounds."""

from collections.abc import Mapping

import numpy as np

from pockengine.compiler.ir import I32, Builder
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape


def slice_at(g: Builder, x: Tensor, dim: int, start: Tensor, size: int) -> Tensor:
    """Take `size` elements along a dimension from one on."""
    places = emit.arithmetic(g, "add", start, _counting(g, size))
    return plain(g.take(framework_order(g, x), places.value, axis=dim))


def put_at(g: Builder, x: Tensor, part: Tensor, starts: Mapping[int, Tensor]) -> Tensor:
    """Replace a slice by `part`, which begins at a place of each of these dimensions."""
    inside: Tensor | None = None
    for dim, start in starts.items():
        size, whole = part.shape[dim], x.shape[dim]
        place = emit.arithmetic(g, "sub", _counting(g, whole), start)
        low = emit.arithmetic(g, "ge", place, 0)
        high = emit.arithmetic(g, "lt", place, size)
        here = emit.arithmetic(g, "logical_and", low, high)
        line = tuple(whole if other == dim else 1 for other in range(x.rank))
        here = reshape(g, here, line)
        inside = here if inside is None else emit.arithmetic(g, "logical_and", inside, here)
        part = plain(g.take(framework_order(g, part), place.value, axis=dim))
    return part if inside is None else emit.elementwise(g, "where", inside, part, x)


def _counting(g: Builder, count: int) -> Tensor:
    return plain(g.constant(np.arange(count, dtype=I32.numpy)))
