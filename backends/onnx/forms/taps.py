"""Windows on an image, and the taps: slices of the image for each element of the window."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pockengine.backends.onnx.forms.movement import sliced
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import IMAGES_FIRST, Layout
from pockengine.compiler.ir import Value
from pockengine.compiler.ir.types import Shape


@dataclass(frozen=True)
class ImageWindows:
    """Geometry of windows on images; rows and columns each, `pads` in ONNX's order."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]


def windows_of(attrs: Mapping[str, Any], weight: Shape) -> ImageWindows:
    """Return the windows of a convolution by a weight of this shape."""
    top, bottom, left, right = attrs["padding"]
    stride, dilation = tuple(attrs["stride"]), tuple(attrs["dilation"])
    return ImageWindows(weight[:2], stride, dilation, (top, left, bottom, right))


class Taps:
    """The slice of x for each tap, for windows that produce an image of y's size.

    Iterated, slices (N, C, OH, OW) of the padded image; with canonical `layout` (N, OH, OW, C).
    """

    def __init__(
        self,
        w: EntryWriter,
        x: Value,
        y: Value,
        windows: ImageWindows,
        layout: Layout = IMAGES_FIRST,
    ) -> None:
        self.w, self.windows, self.output = w, windows, y.shape[1:3]
        top, left, bottom, right = windows.pads
        self.image, self.rows = w.read(x, layout), layout.index(1)
        if any(windows.pads):
            before, after = (0, top, left, 0), (0, bottom, right, 0)
            sizes = [side[axis] for side in (before, after) for axis in layout]
            self.image = w.node("Pad", self.image, w.numbers(sizes))
        self.padded = (x.shape[1] + top + bottom, x.shape[2] + left + right)

    def __iter__(self) -> Iterator[str]:
        """Slice columns once for all rows: a slice of columns copies single elements."""
        high, wide = self.windows.size
        columns = [self._cut(self.image, 1, kw) for kw in range(wide)]
        for kh in range(high):
            for column in columns:
                yield self._cut(column, 0, kh)

    def pixels(self, batch: int) -> np.ndarray:
        """Return which pixels of all padded images each tap reads: i32 [taps, batch OH OW]."""
        rows, columns = (
            [np.arange(*self._span(axis, place)) for place in range(count)]
            for axis, count in enumerate(self.windows.size)
        )
        high, wide = self.padded
        starts = np.arange(batch)[:, None, None] * high * wide
        seen = [starts + row[:, None] * wide + column for row, column in product(rows, columns)]
        return np.stack(seen).reshape(len(seen), -1).astype(np.int32)

    def _cut(self, image: str, axis: int, place: int) -> str:
        span = self._span(axis, place)
        whole = span == (0, self.padded[axis], 1)
        return image if whole else sliced(self.w, image, {self.rows + axis: span})

    def _span(self, axis: int, place: int) -> tuple[int, int, int]:
        start, step = place * self.windows.dilation[axis], self.windows.stride[axis]
        return start, start + (self.output[axis] - 1) * step + 1, step
