"""A convolution or its input gradient, as conv.inc.h computes it: windows of a source times B."""

from dataclasses import dataclass

from pockengine.backends.window import (
    ConvWindow,
    Grid,
    ImageWindow,
    Pair,
    backward_grids,
    forward_grid,
    image_window,
)


@dataclass(frozen=True)
class Geometry:
    """A convolution, or its input gradient, as windows of a source (h, w, channels) times B.

    Positions move by `step` in the source and by `out_step` in the result; each group reads
    `channels` and writes `columns`.
    """

    backward: bool
    grids: tuple[Grid, ...]
    image: ImageWindow
    channels: int
    columns: int
    source: tuple[int, int, int]
    result: Pair
    step: Pair
    out_step: Pair

    @property
    def segments(self) -> list[list[int]]:
        """Offsets of each grid's segments."""
        return [self.image.segments(grid) for grid in self.grids]

    @property
    def depths(self) -> list[int]:
        """Floats of each grid's segments."""
        return [segment_depth(self.image, grid, self.channels) for grid in self.grids]

    @property
    def rows(self) -> int:
        """Rows of positions in the largest grid."""
        return max(grid.rows.positions for grid in self.grids)

    @property
    def pixels(self) -> list[int]:
        """Positions in a row of each grid."""
        return [grid.columns.positions for grid in self.grids]


def forward_geometry(window: ConvWindow) -> Geometry:
    """Windows of x, for y."""
    grids, source = (forward_grid(window),), (*window.size, window.channels)
    return Geometry(
        backward=False,
        grids=grids,
        image=image_window(grids, source, window.stride, window.groups),
        channels=window.group_channels,
        columns=window.group_features,
        source=source,
        result=window.output,
        step=window.stride,
        out_step=(1, 1),
    )


def backward_geometry(window: ConvWindow) -> Geometry:
    """Windows of dy, for dx."""
    grids, source = backward_grids(window), (*window.output, window.features)
    return Geometry(
        backward=True,
        grids=grids,
        image=image_window(grids, source, (1, 1), window.groups),
        channels=window.group_features,
        columns=window.group_channels,
        source=source,
        result=window.size,
        step=(1, 1),
        out_step=window.stride,
    )


def segment_depth(image: ImageWindow, grid: Grid, channels: int) -> int:
    """Floats of one segment: a tap's channels, or those of a row of taps."""
    return channels * (len(grid.columns.kernel) if image.merged else 1)
