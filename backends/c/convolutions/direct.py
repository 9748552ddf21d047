"""Plans of direct convolutions and weight gradients: tile, blocks, split among threads.

Parameters only; conv.py emits the C.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.products.product import TRANSPOSE_CYCLES, Split
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.geometry import (
    Geometry,
    backward_geometry,
    forward_geometry,
    segment_depth,
)
from pockengine.backends.native.kernel import align
from pockengine.backends.window import ConvWindow, ImageWindow, Pair, forward_grid, image_window
from pockengine.devices.schema import Device

MOST_DEPTH, MOST_CONFLICTING_DEPTH = 1024, 512
"""Maximum inner dimension of a block, in floats, unless a single segment is larger. The second
is for weights with rows a multiple of 2 KiB apart: a panel's rows then share cache sets, and few
fit.
"""

SAMPLE_DEPTH = 256
"""Number of positions for which a weight gradient's cost is estimated."""

LARGEST_PARTS = 200_000
"""Maximum size of a weight gradient that each thread sums on its own; larger ones are split by
columns.
"""


@dataclass(frozen=True)
class ConvPlan:
    """A tile, the split among threads, the rows of positions in a block; cycles per thread."""

    tile: Tile
    split: Split
    rows: int
    threads: int
    cycles: float

    @property
    def label(self) -> str:
        """The plan's name among the plans of a convolution."""
        return f"direct {self.split} {self.tile.label}"


@dataclass(frozen=True)
class DirectSpec:
    """Windows of an image times weights: a convolution, or its gradient of the input.

    `block` segments of the taps are summed at once; `unfinished` if there are more. In floats:
    `sums` for these, `packed` for transposed weights, `windows` of each copy of a window.
    """

    window: ConvWindow
    geometry: Geometry
    plan: ConvPlan
    block: int
    unfinished: bool
    sums: int
    packed: int
    windows: int

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        copies = self.plan.threads if self.plan.split == "ROWS" else 1
        return 4 * (self.sums + self.packed + self.windows * copies)


@dataclass(frozen=True)
class GradientSpec:
    """Windows of an image, transposed, times the cotangent: a gradient of the weights.

    A block has `images`; `unfinished` if there is more than one block. `segments` and `depth` are
    those of the result's rows. In floats: `size` of the gradient, `parts` for unfinished sums,
    `windows` of each copy of a window.
    """

    window: ConvWindow
    image: ImageWindow
    segments: tuple[int, ...]
    depth: int
    plan: ConvPlan
    images: int
    unfinished: bool
    size: int
    parts: int
    windows: int

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        copies = self.plan.threads if self.plan.split == "INNER" else self.images
        return 4 * (self.parts + self.windows * copies)


def geometry_of(window: ConvWindow, backward: bool) -> Geometry:
    """Forward: windows of x times w. Input gradient: windows of dy times w transposed."""
    return backward_geometry(window) if backward else forward_geometry(window)


def direct_spec(
    window: ConvWindow, g: Geometry, plan: ConvPlan, size: int, plain: bool
) -> DirectSpec:
    """Lay out the scratch of a plan for `size` results; `plain`: there is no other result."""
    pitch = g.columns * (1 if g.backward else window.groups)
    block = _block_segments(g.segments, g.depths, pitch)
    unfinished = max(map(len, g.segments)) > block
    weights = sum(grid.taps for grid in g.grids) * window.group_channels * window.features
    return DirectSpec(
        window=window,
        geometry=g,
        plan=plan,
        block=block,
        unfinished=unfinished,
        sums=align(size, 16) if unfinished and not plain else 0,
        packed=align(weights, 16) if g.backward else 0,
        windows=_window_floats(g.image, plan, g.step),
    )


def gradient_image(window: ConvWindow) -> tuple[ImageWindow, tuple[int, ...], int]:
    """Return the window of x that a weight gradient reads, and its segments with their depth."""
    grid = forward_grid(window)
    source = (*window.size, window.channels)
    image = image_window((grid,), source, window.stride, window.groups)
    depth = segment_depth(image, grid, window.group_channels)
    return image, tuple(image.segments(grid)), depth


def gradient_spec(window: ConvWindow, plan: ConvPlan, device: Device, plain: bool) -> GradientSpec:
    """Lay out the scratch of a plan; `plain`: nothing follows the gradient."""
    image, segments, depth = gradient_image(window)
    taken = _block_images(window, plan, device)
    blocks = -(-window.images // taken) * -(-window.output[0] // plan.rows)
    unfinished = plan.split == "INNER" or blocks > 1
    size = align(window.taps * window.group_channels * window.features, 16)
    parts = size if unfinished and not plain else 0
    if plan.split == "INNER":
        parts = size * plan.threads
    return GradientSpec(
        window=window,
        image=image,
        segments=segments,
        depth=depth,
        plan=plan,
        images=taken,
        unfinished=unfinished,
        size=size,
        parts=parts,
        windows=_window_floats(image, plan, window.stride),
    )


def _block_segments(segments: Sequence[Sequence[int]], depths: Sequence[int], pitch: int) -> int:
    """Segments of a block: balanced, and few enough for the caches."""
    most, depth = max(map(len, segments)), max(depths)
    limit = MOST_DEPTH if pitch % 512 else MOST_CONFLICTING_DEPTH
    blocks = -(-most * depth // limit)
    return max(1, -(-most // blocks))


def _window_floats(image: ImageWindow, plan: ConvPlan, step: Pair) -> int:
    return align(image.lines(plan.rows, step[0]) * image.line, 16) if image.copied else 0


def _block_rows(image: ImageWindow, rows: int, step: Pair, device: Device, weights: int) -> int:
    """Rows of positions whose window fits in a quarter of the second-level cache.

    Each block reads large weights, or their gradient, again: then half of the cache is used.
    """
    budget = device.cpu.l2_bytes // (8 if 4 * weights > device.cpu.l2_bytes else 16)
    fitting = [n for n in range(1, rows + 1) if image.lines(n, step[0]) * image.line <= budget]
    most = max(fitting, default=1)
    return -(-rows // -(-rows // most))


def _block_images(window: ConvWindow, plan: ConvPlan, device: Device) -> int:
    """Images in a block of a weight gradient: several if its sums far exceed the cache.

    Each block reads and writes all sums. The images' windows take a quarter of the last cache.
    """
    weights = window.taps * window.group_channels * window.features
    whole = plan.split == "COLUMNS" and plan.rows == window.output[0]
    if not whole or weights <= device.cpu.l2_bytes:
        return 1
    pixels = (window.size[0] + window.kernel[0]) * (window.size[1] + window.kernel[1])
    most = max(1, device.cpu.l3_bytes // (16 * pixels * window.channels))
    return -(-window.images // -(-window.images // most))


def direct_plans(window: ConvWindow, g: Geometry, device: Device) -> list[ConvPlan]:
    """Every tile and split, with the estimate of tile.py."""
    threads, machine = device.cpu.cores, machine_of(device)
    pixels, rows = max(g.pixels), window.images * g.rows
    taps = sum(max(grid.taps, 0.1) for grid in g.grids)
    weights = window.taps * window.group_channels * window.features
    transposed = weights * TRANSPOSE_CYCLES / threads if g.backward else 0.0

    def cycles(tile: Tile, split: Split) -> float:
        share, width = rows, g.columns
        if split == "ROWS":
            share = -(-rows // threads)
        else:
            panels = -(-g.columns // tile.columns)
            width = min(g.columns, -(-panels // threads) * tile.columns)
        one = multiply_cycles(machine, tile, pixels, columns=width, depth=int(taps * g.channels))
        return share * one + transposed

    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    found = tiles(machine, pixels, g.columns, g.step[1] * g.image.pixel)
    block = _block_rows(g.image, g.rows, g.step, device=device, weights=weights)
    return [
        ConvPlan(tile, split, block, threads=threads, cycles=cycles(tile, split))
        for tile in found
        for split in splits
    ]


def gradient_plans(window: ConvWindow, device: Device) -> list[ConvPlan]:
    """Every tile, with the same estimate."""
    image, _, depth = gradient_image(window)
    threads, columns = device.cpu.cores, window.group_features
    machine, rows = machine_of(device), window.images * window.output[0]
    weights = window.taps * window.group_channels * window.features
    small = weights <= LARGEST_PARTS
    split: Split = "INNER" if small else "COLUMNS"

    def cycles(tile: Tile) -> float:
        width = columns
        if split == "COLUMNS":
            panels = -(-columns // tile.columns)
            width = min(columns, -(-panels // threads) * tile.columns)
        times = window.taps * window.group_channels / depth * window.pixels / SAMPLE_DEPTH
        one = multiply_cycles(
            machine, tile, depth, columns=width, depth=SAMPLE_DEPTH, transposed=True
        )
        return one * times * window.groups / (threads if split == "INNER" else 1)

    most = min(rows, window.output[0])
    block = _block_rows(image, most, window.stride, device=device, weights=weights)
    found = tiles(machine, depth, columns)
    return [ConvPlan(tile, split, block, threads=threads, cycles=cycles(tile)) for tile in found]
