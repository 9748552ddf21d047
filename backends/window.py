"""The geometry of a convolution: its grids of positions, and the image window that they read.

A grid is a set of result pixels at equal distances that see the source image through the same taps.
A convolution has one. Its input gradient has one for each residue of the pixel's coordinates modulo
the stride, because each residue has its own taps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from pockengine.compiler.ir import Node

Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvWindow:
    """A convolution: x (images, h, w, c), w (kh, kw, c / groups, o), y (images, oh, ow, o)."""

    images: int
    size: Pair
    channels: int
    kernel: Pair
    output: Pair
    features: int
    stride: Pair
    padding: tuple[int, int, int, int]
    dilation: Pair
    groups: int

    @property
    def taps(self) -> int:
        """Taps of the window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def before(self) -> Pair:
        """Padding at the top and at the left."""
        return self.padding[0], self.padding[2]

    @property
    def group_channels(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def group_features(self) -> int:
        """Output channels of a group."""
        return self.features // self.groups

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.images * self.output[0] * self.output[1]

    @property
    def is_matmul(self) -> bool:
        """Whether every output pixel sees exactly the input pixel at its own position."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and self.padding == (0, 0, 0, 0)
            and self.groups == 1
        )

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has its own window and nothing else."""
        return self.groups == self.channels == self.features

    @property
    def key(self) -> str:
        """Unique key: the string form, plus what it leaves out."""
        padding, dilation = ("x".join(map(str, each)) for each in (self.padding, self.dilation))
        return f"{self} p{padding} d{dilation} g{self.groups}"

    def __str__(self) -> str:
        images = f"{self.images}x" if self.images > 1 else ""
        size, kernel, stride = (
            "x".join(map(str, p)) for p in (self.size, self.kernel, self.stride)
        )
        return f"{images}{size}x{self.channels}_{self.features}_k{kernel}_s{stride}"


def window_of(node: Node) -> ConvWindow:
    """Read the shapes of conv2d, conv2d_dx or conv2d_dw."""
    first, second = (operand.shape for operand in node.operands)
    if node.op == "conv2d":
        x, w, y = first, second, node.result.shape
    elif node.op == "conv2d_dx":
        x, w, y = node.result.shape, second, first
    else:
        x, w, y = first, node.result.shape, second
    return ConvWindow(
        images=x[0],
        size=(x[1], x[2]),
        channels=x[3],
        kernel=(w[0], w[1]),
        output=(y[1], y[2]),
        features=w[3],
        stride=tuple(node.attrs["stride"]),
        padding=tuple(node.attrs["padding"]),
        dilation=tuple(node.attrs["dilation"]),
        groups=node.attrs["groups"],
    )


def describe(op: str, window: ConvWindow) -> str:
    """Describe the convolution in words and sizes."""
    w = window
    text = (
        f"{op}: x[{w.images},{w.size[0]},{w.size[1]},{w.channels}] "
        f"w[{w.kernel[0]},{w.kernel[1]},{w.group_channels},{w.features}] "
        f"y[{w.images},{w.output[0]},{w.output[1]},{w.features}], stride {w.stride}, "
        f"padding {w.padding}"
    )
    if w.dilation != (1, 1):
        text += f", dilation {w.dilation}"
    if w.groups > 1:
        text += f", {w.groups} groups"
    return text


@dataclass(frozen=True)
class Axis:
    """One dimension of a grid: its positions, and its taps in order of the pixels they read.

    Tap i of position p reads source pixel p * step + `start` + i * `gap`; the result pixel of
    position 0 is `out`. `kernel` lists which of the window's taps these are.
    """

    positions: int
    kernel: tuple[int, ...]
    start: int
    gap: int
    out: int

    @property
    def last_tap(self) -> int:
        """Source pixel of the last tap at position 0."""
        return self.start + (len(self.kernel) - 1) * self.gap


@dataclass(frozen=True)
class Grid:
    """Rows and columns of positions, and the start of its taps among those of all grids."""

    rows: Axis
    columns: Axis
    first_tap: int = 0

    @property
    def taps(self) -> int:
        """Taps of a position."""
        return len(self.rows.kernel) * len(self.columns.kernel)

    @property
    def positions(self) -> int:
        """Positions in one image."""
        return self.rows.positions * self.columns.positions


@dataclass(frozen=True)
class ImageWindow:
    """Location of source pixels in the copy that kernels read: see image_window.inc.h.

    Rows and columns of the source are counted from `first`; `pixel` and `line` are in floats.
    Without `copied` the source itself is the window. If `merged`, adjacent taps of a row are one
    segment.
    """

    copied: bool
    first: Pair
    width: int
    reach: int
    pixel: int
    line: int
    merged: bool

    def lines(self, rows: int, step: int) -> int:
        """Lines of the window that this many rows of positions read."""
        return (rows - 1) * step + self.reach

    def segments(self, grid: Grid) -> list[int]:
        """Offsets of a grid's taps, or rows of taps, from position 0's first pixel."""
        rows, columns = grid.rows, grid.columns
        lines = [rows.start + t * rows.gap - self.first[0] for t in range(len(rows.kernel))]
        pixels = [
            columns.start + u * columns.gap - self.first[1] for u in range(len(columns.kernel))
        ]
        if self.merged:
            pixels = pixels[:1]
        return [line * self.line + pixel * self.pixel for line, pixel in product(lines, pixels)]


def image_window(
    grids: Sequence[Grid], source: tuple[int, int, int], step: Pair, groups: int
) -> ImageWindow:
    """Lay out the window of a source (h, w, channels) in which these grids move by `step`."""
    height, width, channels = source
    rows, columns = ([getattr(g, name) for g in grids if g.taps] for name in ("rows", "columns"))
    first = (min(axis.start for axis in rows), min(axis.start for axis in columns))
    reach = max(axis.last_tap for axis in rows) + 1
    last_row = (max(axis.positions for axis in rows) - 1) * step[0] + reach
    last_column = max((axis.positions - 1) * step[1] + axis.last_tap + 1 for axis in columns)
    adjacent = groups == 1 and all(axis.gap == 1 for axis in columns)
    if min(first) >= 0 and last_row <= height and last_column <= width:
        return ImageWindow(
            False,
            (0, 0),
            width,
            reach=reach,
            pixel=channels,
            line=width * channels,
            merged=adjacent,
        )
    pixel = channels + 16 if channels % 256 == 0 else channels
    window_width = last_column - first[1]
    return ImageWindow(
        copied=True,
        first=first,
        width=window_width,
        reach=reach - first[0],
        pixel=pixel,
        line=window_width * pixel,
        merged=adjacent and pixel == channels,
    )


def forward_grid(window: ConvWindow) -> Grid:
    """Return the one grid of a convolution."""
    rows, columns = (
        Axis(window.output[d], tuple(range(window.kernel[d])), -window.before[d], gap=gap, out=0)
        for d, gap in enumerate(window.dilation)
    )
    return Grid(rows, columns)


def backward_grids(window: ConvWindow) -> tuple[Grid, ...]:
    """Return the grids of the gradient with respect to the input; their source is dy.

    If every window lies in the padding, the first grid reads one tap outside of dy: zeros.
    """
    grids: list[Grid] = []
    tap = 0
    for rows, columns in product(_backward_axes(window, 0), _backward_axes(window, 1)):
        grids.append(Grid(rows, columns, tap))
        tap += grids[-1].taps
    if tap == 0:
        grids[0] = _outside(grids[0])
    return tuple(grids)


def _outside(grid: Grid) -> Grid:
    """Give a grid one tap, which reads rows before the source's first at every position."""
    rows = replace(grid.rows, kernel=(0,), start=-grid.rows.positions)
    return replace(grid, rows=rows, columns=replace(grid.columns, kernel=(0,), start=0))


def _backward_axes(window: ConvWindow, dimension: int) -> list[Axis]:
    """Input pixel i0 + s n meets tap k where s divides i0 + padding - k d, and reads dy there.

    Taps are listed backwards, so that the pixels they read come in order of memory.
    """
    stride, gap = window.stride[dimension], window.dilation[dimension]
    before, size = window.before[dimension], window.size[dimension]
    axes = []
    for first in range(min(stride, size)):
        kernel = tuple(
            k
            for k in reversed(range(window.kernel[dimension]))
            if (first + before - k * gap) % stride == 0
        )
        reads = [(first + before - k * gap) // stride for k in kernel]
        step = reads[1] - reads[0] if len(reads) > 1 else 1
        positions = -(-(size - first) // stride)
        axes.append(Axis(positions, kernel, reads[0] if reads else 0, gap=step, out=first))
    return axes


def tap_order(window: ConvWindow, grids: Sequence[Grid]) -> list[int]:
    """Each grid's taps in its order, as places in the window."""
    return [
        kh * window.kernel[1] + kw
        for grid in grids
        for kh, kw in product(grid.rows.kernel, grid.columns.kernel)
    ]
