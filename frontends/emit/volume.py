"""Convolution and pooling of volumes (N, C, D, H, W), in our ops of pictures."""

import math
from collections.abc import Sequence
from typing import Any

from pockengine.compiler.ir import Builder, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Window
from pockengine.frontends.layout import Layout, Tensor, framework_order, stored

NDHWC: Layout = (0, 2, 3, 4, 1)
"""Our order of an activation that the framework calls (N, C, D, H, W)."""
HWDIO: Layout = (3, 4, 2, 1, 0)
"""Our order of a convolution's weight that the framework calls (O, I, D, H, W)."""


def conv3d(
    g: Builder, x: Tensor, weight: Tensor, bias: Tensor | None, window: Window, groups: int
) -> Tensor:
    """Convolve (N, C, D, H, W) by (O, C / groups, KD, KH, KW) and add a bias of (O,)."""
    (front, back, *padding), (step, *stride) = window.padding, window.stride
    gap, *dilation = window.dilation
    value = stored(g, emit.pad(g, x, (0, 0, front, 0, 0), (0, 0, back, 0, 0), value=0.0), NDHWC)
    batch, depth, height, width, channels = value.shape
    size = (depth - gap * (window.kernel[0] - 1) - 1) // step + 1
    taps = []
    for first in range(0, gap * window.kernel[0], gap):
        start, stop = (0, first, 0, 0, 0), (batch, first + (size - 1) * step + 1)
        tap = g.slice(
            value, start=start, stop=(*stop, height, width, channels), step=(1, step, 1, 1, 1)
        )
        taps.append(g.reshape(tap, shape=(batch * size, height, width, groups, channels // groups)))
    slices = g.emit("concat", *taps, axis=4).result if len(taps) > 1 else taps[0]
    kernel = stored(g, weight, HWDIO)
    rows, columns, *inner, outputs = kernel.shape
    y = g.conv2d(
        g.reshape(slices, shape=(batch * size, height, width, len(taps) * channels)),
        g.reshape(kernel, shape=(rows, columns, math.prod(inner), outputs)),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
    )
    y = y if bias is None else g.add(y, framework_order(g, bias))
    return _volume(g, y, batch)


def conv_transpose3d(
    g: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
    size: Sequence[int],
) -> Tensor:
    """Undo the shape of a convolution by (I, O / groups, KD, KH, KW): its input gradient.

    `size` is (D, H, W) of the result, from its first element on; the rest is cropped, as is the
    window's padding before it.
    """
    (front, _, top, _, left, _), offsets = window.padding, window.padding[::2]
    whole = _spread_pictures(g, x, weight, window=window, groups=groups)
    batch, slices, height, width, _, depth, outputs = whole.shape
    step, gap = window.stride[0], window.dilation[0]
    end = (slices - 1) * step + gap * (depth - 1) + 1
    total: Value | None = None
    for tap in range(depth):
        stop = (*whole.shape[:5], tap + 1, outputs)
        part = g.slice(whole, start=(0, 0, 0, 0, 0, tap, 0), stop=stop, step=(1,) * 7)
        part = g.reshape(part, shape=(batch, slices, height, width, groups * outputs))
        part = _spread_out(g, part, step, first=gap * tap, size=end)
        total = part if total is None else g.add(total, part)
    assert total is not None  # a kernel has a depth of 1 at least
    extent = (end, height, width)
    behind = [n + before - most for n, before, most in zip(size, offsets, extent, strict=True)]
    y = emit.pad(g, Tensor(total, NDHWC), (0, 0, -front, -top, -left), (0, 0, *behind), value=0.0)
    return y if bias is None else Tensor(g.add(y.value, framework_order(g, bias)), NDHWC)


def _spread_pictures(g: Builder, x: Tensor, weight: Tensor, window: Window, groups: int) -> Value:
    """Return each slice's contribution under each tap of the depth: (N, D, H, W, groups, KD, O)."""
    kernel, value = stored(g, weight, HWDIO), stored(g, x, NDHWC)
    rows, columns, depth, outputs, inputs = kernel.shape
    batch, slices, height, width, _ = value.shape
    stride, dilation = window.stride[1:], window.dilation[1:]
    reach = [
        (n - 1) * step + gap * (k - 1) + 1
        for n, step, gap, k in zip((height, width), stride, dilation, (rows, columns), strict=True)
    ]
    spread = g.conv2d_dx(
        g.reshape(value, shape=(batch * slices, height, width, inputs)),
        g.reshape(kernel, shape=(rows, columns, depth * outputs, inputs)),
        input_shape=(batch * slices, *reach, groups * depth * outputs),
        stride=stride,
        dilation=dilation,
        groups=groups,
    )
    return g.reshape(spread, shape=(batch, slices, *reach, groups, depth, outputs))


def _spread_out(g: Builder, x: Value, step: int, first: int, size: int) -> Value:
    """Spread axis 1 to the places first, first + step, ... of `size`, with zeros between."""
    batch, count, *sizes = x.shape
    none = (0,) * len(sizes)
    if step > 1:
        x = g.reshape(x, shape=(batch, count, 1, *sizes))
        x = g.pad(x, low=(0, 0, 0, *none), high=(0, 0, step - 1, *none), value=0.0)
        x = g.reshape(x, shape=(batch, count * step, *sizes))
        x = _cut(g, x, (count - 1) * step + 1)
    return g.pad(x, low=(0, first, *none), high=(0, size - first - x.shape[1], *none), value=0.0)


def _cut(g: Builder, x: Value, count: int) -> Value:
    """Keep the first `count` of axis 1."""
    batch, _, *sizes = x.shape
    rank = len(x.shape)
    return g.slice(x, start=(0,) * rank, stop=(batch, count, *sizes), step=(1,) * rank)


def max_pool3d(g: Builder, x: Tensor, window: Window) -> Tensor:
    """Take the maximum of each window of (N, C, D, H, W); of equal ones the first."""
    pictures, lines = _split(window)
    value = stored(g, x, NDHWC)
    value = _pool(g, "max_pool2d", value, pictures, dilation=pictures.dilation)
    return Tensor(_pool_depth(g, "max_pool2d", value, lines, dilation=lines.dilation), NDHWC)


def avg_pool3d(g: Builder, x: Tensor, window: Window, count_padding: bool) -> Tensor:
    """Average each window of (N, C, D, H, W)."""
    pictures, lines = _split(window)
    how = {"count_include_pad": count_padding}
    value = _pool(g, "avg_pool2d", stored(g, x, NDHWC), pictures, **how)
    return Tensor(_pool_depth(g, "avg_pool2d", value, lines, **how), NDHWC)


def _split(window: Window) -> tuple[Window, Window]:
    """Return the window on each slice, and that over the slices as rows of a picture."""
    front, back, *sides = window.padding
    pictures = Window(window.kernel[1:], window.stride[1:], tuple(sides), window.dilation[1:])
    depth, step = window.kernel[0], window.stride[0]
    lines = Window((depth, 1), (step, 1), (front, back, 0, 0), (*window.dilation[:1], 1))
    return pictures, lines


def _pool(g: Builder, op: str, x: Value, window: Window, **attrs: Any) -> Value:
    """Pool the slices of (N, D, H, W, C)."""
    batch, depth, *picture = x.shape
    y = _pool_pictures(g, op, g.reshape(x, shape=(batch * depth, *picture)), window, **attrs)
    return g.reshape(y, shape=(batch, depth, *y.shape[1:]))


def _pool_depth(g: Builder, op: str, x: Value, window: Window, **attrs: Any) -> Value:
    """Pool (N, D, H, W, C) along its depth."""
    batch, depth, height, width, channels = x.shape
    lines = g.reshape(x, shape=(batch, depth, height * width, channels))
    y = _pool_pictures(g, op, lines, window, **attrs)
    return g.reshape(y, shape=(batch, y.shape[1], height, width, channels))


def _pool_pictures(g: Builder, op: str, x: Value, window: Window, **attrs: Any) -> Value:
    if set((*window.kernel, *window.stride)) == {1} and not any(window.padding):
        return x
    how = {"kernel": window.kernel, "stride": window.stride, "padding": window.padding}
    return g.emit(op, x, **how, **attrs).result


def _volume(g: Builder, pictures: Value, batch: int) -> Tensor:
    """Return the slices of volumes as the volumes."""
    count, *picture = pictures.shape
    return Tensor(g.reshape(pictures, shape=(batch, count // batch, *picture)), NDHWC)
