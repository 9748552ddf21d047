"""Positions of maxima in pooling, and unpooling at these positions."""

import math
from collections.abc import Sequence

import numpy as np

from pockengine.compiler.ir import I64, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Window
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape

LOWEST = float(np.finfo(np.float32).min)


def max_places(g: Builder, x: Tensor, window: Window) -> Tensor:
    """Return where in its channel of (N, C, ...) each window has its first maximum.

    Places count the elements of a channel in row-major order; i64, in the shape of the maxima. NaN
    is a maximum, as in PyTorch, of which the last one is taken there.
    """
    sizes, rank = x.shape[2:], len(window.kernel)
    low, high = ((0, 0, *window.padding[side::2]) for side in range(2))
    above = emit.arithmetic(g, "maximum", x, LOWEST)  # so that padding is never a maximum
    padded = emit.pad(g, above, low, high, value=-math.inf)
    counts = [
        (size - gap * (kernel - 1) - 1) // step + 1
        for size, gap, kernel, step in zip(
            padded.shape[2:], window.dilation, window.kernel, window.stride, strict=True
        )
    ]
    taps, offsets = [], []
    for tap in np.ndindex(*window.kernel):
        first = [gap * place for gap, place in zip(window.dilation, tap, strict=True)]
        stop = [
            place + (count - 1) * step + 1
            for place, count, step in zip(first, counts, window.stride, strict=True)
        ]
        part = emit.slice_(
            g, padded, start=(0, 0, *first), stop=(*x.shape[:2], *stop), step=(1, 1, *window.stride)
        )
        taps.append(reshape(g, part, (*part.shape, 1)))
        offsets.append(_flat(first, sizes))
    starts = [
        np.arange(count) * step - before
        for count, step, before in zip(counts, window.stride, window.padding[::2], strict=True)
    ]
    corners = _flat(np.meshgrid(*starts, indexing="ij"), sizes)
    best = g.argmax(framework_order(g, emit.concat(g, taps, 2 + rank)), axis=2 + rank)
    within = plain(g.take(g.constant(np.asarray(offsets, np.int64)), best, axis=0))
    return emit.arithmetic(g, "add", within, plain(g.constant(np.asarray(corners, np.int64))))


def _flat(places: Sequence[np.ndarray | int], sizes: Sequence[int]) -> np.ndarray:
    """Count places along each dimension in row-major order."""
    flat = np.zeros((), np.int64)
    for place, size in zip(places, sizes, strict=True):
        flat = flat * size + place
    return flat


def unpooled(g: Builder, x: Tensor, places: Tensor, sizes: Sequence[int]) -> Tensor:
    """Write the elements of each channel of (N, C, ...) to their places in a channel of zeros.

    Overlapping windows may contain an element twice; each then gets the whole gradient.
    """
    lines = (*x.shape[:2], math.prod(x.shape[2:]))
    whole = (*x.shape[:2], math.prod(sizes))
    index = framework_order(g, emit.cast(g, reshape(g, places, lines), I64))

    def added(values: Tensor) -> Tensor:
        value = framework_order(g, values)
        return plain(g.take_along_dx(value, index, axis=2, input_shape=whole))

    total = added(reshape(g, x, lines))
    hits = added(plain(g.constant(np.ones(lines, np.float32))))
    once = emit.arithmetic(g, "div", total, emit.arithmetic(g, "maximum", hits, 1.0))
    extra = emit.unary("stop_gradient")(g, emit.arithmetic(g, "sub", once, total))
    return reshape(g, emit.arithmetic(g, "add", total, extra), (*x.shape[:2], *sizes))
