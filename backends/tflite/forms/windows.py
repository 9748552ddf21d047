"""Windows over an image: the runtime's named padding, and taps."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pockengine.backends.runtimes.forms import Span
from pockengine.backends.tflite.forms.movement import padded, sliced
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter

Attrs = Mapping[str, Any]
Pair = tuple[int, ...]
"""Two numbers, for rows and columns."""


@dataclass(frozen=True)
class PaddedWindow:
    """A window of `kernel` over padded images (N, H, W, C) of `size`."""

    size: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]

    @classmethod
    def of(cls, attrs: Attrs, size: Pair, kernel: Pair) -> Self:
        """Read a node's window."""
        dilation = attrs.get("dilation", (1, 1))
        return cls(size, kernel, attrs["stride"], dilation, attrs["padding"])

    @property
    def padded(self) -> Pair:
        """Height and width of the padded image."""
        top, bottom, left, right = self.padding
        return self.size[0] + top + bottom, self.size[1] + left + right

    @property
    def reach(self) -> Pair:
        """Rows and columns from a window's first pixel to its last in the image."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def output(self) -> Pair:
        """Height and width of the result."""
        (h, w), (rh, rw), (sh, sw) = self.padded, self.reach, self.stride
        return (h - rh) // sh + 1, (w - rw) // sw + 1

    @property
    def named(self) -> str:
        """The runtime's name of the padding; None if it has none."""
        if not any(self.padding):
            return "VALID"
        sides = (self.padding[:2], self.padding[2:])
        rows = zip(self.size, self.stride, self.reach, sides, strict=True)
        return "SAME" if all(_is_same(*row) for row in rows) else ""

    def pad(self, w: EntryWriter, x: LiteTensor, value: LiteTensor | None = None) -> LiteTensor:
        """Pad an image."""
        top, bottom, left, right = self.padding
        return padded(w, x, (0, top, left, 0), (0, bottom, right, 0), value=value)

    def prepared(
        self, w: EntryWriter, x: LiteTensor, value: LiteTensor | None = None
    ) -> tuple[LiteTensor, dict[str, Any]]:
        """Return the image and the attributes for an operator with this window."""
        name, (sh, sw) = self.named, self.stride
        if not name:
            x, name = self.pad(w, x, value), "VALID"
        return x, {"Padding": name, "StrideH": sh, "StrideW": sw}

    @property
    def dilated(self) -> dict[str, Any]:
        """The additional attributes of convolutions."""
        return dict(zip(("DilationHFactor", "DilationWFactor"), self.dilation, strict=True))

    def spans(self) -> Iterator[tuple[Span, Span]]:
        """Yield the slices of the padded image for each element of the window: rows, columns."""
        for kh in range(self.kernel[0]):
            for kw in range(self.kernel[1]):
                yield self._span(0, kh), self._span(1, kw)

    def taps(self, w: EntryWriter, image: LiteTensor, axis: int = 1) -> Iterator[LiteTensor]:
        """Yield the taps of a padded image; `axis` is that of its rows."""
        for rows, columns in self.spans():
            yield sliced(w, image, {axis: rows, axis + 1: columns})

    def _span(self, axis: int, place: int) -> Span:
        start, step = place * self.dilation[axis], self.stride[axis]
        return start, start + (self.output[axis] - 1) * step + 1, step


def _is_same(size: int, stride: int, reach: int, sides: Pair) -> bool:
    """Whether the padding equals `SAME`: the smaller half before, the rest after."""
    whole = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return sides == (whole // 2, whole - whole // 2)
