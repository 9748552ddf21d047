"""Rules of `legalize` for gradients of convolutions and for pooling.

The gradients are convolutions of rearranged operands; pooling is arithmetic on its taps, each a
strided slice of the image for one element of the window.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.rewrite import Rule
from pockengine.compiler.ir.types import Shape
from pockengine.compiler.ops.conv import pad_image, window_output, window_taps
from pockengine.compiler.ops.shape import cut, spread

Results = tuple[Value, ...]
Attrs = Mapping[str, Any]


def _conv2d_dx(g: Builder, node: Node) -> Results:
    """Convolve dy, dilated by the stride, with the flipped window; crop the padding."""
    (dy, w), attrs = node.operands, node.attrs
    groups, (high, wide, inner, outer) = attrs["groups"], w.shape
    turned = g.reshape(
        g.reverse(w, axes=(0, 1)), shape=(high, wide, inner, groups, outer // groups)
    )
    turned = g.reshape(
        g.transpose(turned, perm=(0, 1, 4, 3, 2)),
        shape=(high, wide, outer // groups, groups * inner),
    )
    reach = [(k - 1) * d for k, d in zip(w.shape[:2], attrs["dilation"], strict=True)]
    whole = g.conv2d(
        spread(g, dy, (1, *attrs["stride"], 1)),
        turned,
        padding=(reach[0], reach[0], reach[1], reach[1]),
        dilation=attrs["dilation"],
        groups=groups,
    )
    return (_cropped(g, whole, attrs["input_shape"], attrs["padding"]),)


def _cropped(g: Builder, image: Value, shape: Shape, padding: Shape) -> Value:
    """Cut the padding off; rows and columns that no window reached are padded with zeros first."""
    top, _, left, _ = padding
    missing = [
        max(0, begin + size - have)
        for begin, size, have in zip((top, left), shape[1:3], image.shape[1:3], strict=True)
    ]
    if any(missing):
        image = g.pad(image, low=(0, 0, 0, 0), high=(0, *missing, 0))
    return cut(g, image, (0, top, left, 0), (shape[0], top + shape[1], left + shape[2], shape[3]))


def _conv2d_dw(g: Builder, node: Node) -> Results:
    """Convolve x with dy as the window: batch and channels swap, and stride and dilation swap."""
    (x, dy), attrs = node.operands, node.attrs
    groups, (high, wide, inner, outer) = attrs["groups"], attrs["weight_shape"]
    batch, rows, columns, _ = x.shape
    split = g.reshape(x, shape=(batch, rows, columns, groups, inner))
    images = g.reshape(
        g.transpose(split, perm=(4, 1, 2, 3, 0)), shape=(inner, rows, columns, groups * batch)
    )
    sums = g.conv2d(
        images,
        g.transpose(dy, perm=(1, 2, 0, 3)),
        stride=attrs["dilation"],
        dilation=attrs["stride"],
        padding=attrs["padding"],
        groups=groups,
    )
    used = cut(g, sums, (0, 0, 0, 0), (inner, high, wide, outer))
    return (g.transpose(used, perm=(1, 2, 0, 3)),)


class _Window:
    """A pooling window over an image of this shape: extracts and scatters its taps."""

    def __init__(self, g: Builder, shape: Shape, attrs: Attrs) -> None:
        self.g, self.shape, self.attrs = g, shape, attrs
        self.output = window_output(shape[1:3], attrs["kernel"], attrs)
        top, bottom, left, right = attrs["padding"]
        self.low, self.high = (0, top, left, 0), (0, bottom, right, 0)
        self.padded = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3])

    def spans(self) -> Iterator[tuple[Shape, Shape, Shape]]:
        """Yield start, stop and step of each tap in the padded image, in order."""
        (sh, sw), (dh, dw) = self.attrs["stride"], self.attrs.get("dilation", (1, 1))
        for kh in range(self.attrs["kernel"][0]):
            for kw in range(self.attrs["kernel"][1]):
                begin = (0, kh * dh, kw * dw, 0)
                rows, columns = (self.output[0] - 1) * sh + 1, (self.output[1] - 1) * sw + 1
                end = (self.shape[0], begin[1] + rows, begin[2] + columns, self.shape[3])
                yield begin, end, (1, sh, sw, 1)

    def taps(self, x: Value, outside: float) -> list[Value]:
        """The slice of x, padded with a number, for each element of the window."""
        padded = self.g.pad(x, low=self.low, high=self.high, value=outside)
        return [
            self.g.slice(padded, start=start, stop=stop, step=step)
            for start, stop, step in self.spans()
        ]

    def put_back(self, parts: list[Value]) -> Value:
        """Add each tap's values to the pixels that it read."""
        total = None
        for part, (start, stop, step) in zip(parts, self.spans(), strict=True):
            high = tuple(size - end for size, end in zip(self.padded, stop, strict=True))
            placed = self.g.pad(spread(self.g, part, step), low=start, high=high)
            total = placed if total is None else self.g.add(total, placed)
        assert total is not None
        ends = tuple(low + size for low, size in zip(self.low, self.shape, strict=True))
        return cut(self.g, total, self.low, ends)

    def inside(self) -> list[np.ndarray]:
        """Which pixels of each tap are in the image rather than padding; shape (1, OH, OW, 1)."""
        image = pad_image(np.ones((1, *self.shape[1:3], 1), bool), self.attrs["padding"], False)
        taps = window_taps(image, self.attrs["kernel"], self.output, self.attrs)
        return [np.ascontiguousarray(view) for _, _, view in taps]

    def divisor(self) -> Value:
        """Number of pixels that each window averages over."""
        taps = self.inside()
        whole = self.attrs["count_include_pad"]
        count = np.sum([np.ones_like(tap) if whole else tap for tap in taps], axis=0)
        return self.g.constant(count.astype(np.float32), "pixels")


def _max_pool(g: Builder, node: Node) -> Results:
    window = _Window(g, node.operands[0].shape, node.attrs)
    return (_largest(g, window.taps(node.operands[0], -np.inf)),)


def _largest(g: Builder, taps: list[Value]) -> Value:
    most = taps[0]
    for tap in taps[1:]:
        most = g.maximum(most, tap)
    return most


def _max_pool_dx(g: Builder, node: Node) -> Results:
    """Give each window's cotangent to its last NaN, else to its first maximum in the image."""
    x, dy = node.operands
    window = _Window(g, x.shape, node.attrs)
    taps = window.taps(x, -np.inf)
    most, chosen, before = _largest(g, taps), [], None
    for tap, inside in zip(taps, window.inside(), strict=True):
        hit = g.eq(tap, most)
        if not inside.all():
            hit = g.logical_and(hit, g.constant(inside, "inside"))
        first = hit if before is None else g.logical_and(hit, g.logical_not(before))
        chosen.append(first)
        before = hit if before is None else g.logical_or(before, hit)
    nan = None
    for place in reversed(range(len(taps))):
        own = g.ne(taps[place], taps[place])
        last = own if nan is None else g.logical_and(own, g.logical_not(nan))
        chosen[place] = g.logical_or(chosen[place], last)
        nan = own if nan is None else g.logical_or(nan, own)
    return (window.put_back([g.where(mask, dy, g.scalar(0.0)) for mask in chosen]),)


def _avg_pool(g: Builder, node: Node) -> Results:
    window = _Window(g, node.operands[0].shape, node.attrs)
    total, *others = window.taps(node.operands[0], 0.0)
    for tap in others:
        total = g.add(total, tap)
    return (g.div(total, window.divisor()),)


def _avg_pool_dx(g: Builder, node: Node) -> Results:
    window = _Window(g, node.attrs["input_shape"], node.attrs)
    share = g.div(node.operands[0], window.divisor())
    return (window.put_back([share] * len(list(window.spans()))),)


RULES: Mapping[str, Rule] = {
    "conv2d_dx": _conv2d_dx,
    "conv2d_dw": _conv2d_dw,
    "max_pool2d": _max_pool,
    "max_pool2d_dx": _max_pool_dx,
    "avg_pool2d": _avg_pool,
    "avg_pool2d_dx": _avg_pool_dx,
}
