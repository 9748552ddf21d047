"""3x3 convolutions of stride 1, and their input gradients, by Winograd's method.

F(r x r, 3 x 3) takes (r + 2)² products for r² results instead of 9 r²: 4 times fewer for r = 4,
2.25 times fewer for r = 2, minus the transforms and the waste of tiles at the border. The template
is runtime/kernels/winograd.inc.h. This module chooses r, the blocks of tiles, and the split among
threads; or nothing if the direct kernel is estimated to be as fast.

Rounding: the interpolation of r = 4 multiplies sums by up to 8 in each dimension, so errors are
about ten times those of a direct sum.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

from pockengine.backends.c.elementwise.epilogue import Anchored
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.native.kernel import SYMBOL, Kernel, Parameter, align, define_kernel, note
from pockengine.backends.window import ConvWindow, Pair, describe
from pockengine.compiler.target import Prepared
from pockengine.devices.schema import Device

Split = Literal["ROWS", "COLUMNS"]

TRANSFORM_CYCLES = {2: (50.0, 40.0, 45.0), 4: (160.0, 110.0, 110.0)}
"""Cycles to transform 16 channels of a window, of a filter, and of a tile of products, by r."""

RELOAD_CYCLES, STREAM_CYCLES, ROWS_CYCLES, MEMORY_CYCLES = 0.06, 0.25, 0.6, 2.0
"""Cycles to load a float from the second-level cache; from beyond it in one stream; from beyond
it in short rows; and to write it to memory and read it back.
"""

SIZES: tuple[int, ...] = (4, 2)
"""Tile sizes (rows = columns), larger first."""

WEIGHTS = 1
"""Position of the weights among the operands of `conv2d` and `conv2d_dx`."""


@dataclass(frozen=True)
class Tiling:
    """A correlation of `source` (h, w, channels) with 3x3 filters, in tiles of `size` squared.

    `before` is the padding at the top and at the left. `backward` marks the input gradient: filters
    are flipped and transposed.
    """

    size: int
    images: int
    source: tuple[int, int, int]
    result: Pair
    columns: int
    before: Pair
    backward: bool

    @property
    def planes(self) -> int:
        """Points of a window, each with its own matrix product."""
        return (self.size + 2) ** 2

    @cached_property
    def grid(self) -> Pair:
        """Rows and columns of tiles in an image."""
        return -(-self.result[0] // self.size), -(-self.result[1] // self.size)

    @cached_property
    def tiles(self) -> int:
        """Tiles of all images."""
        return self.images * self.grid[0] * self.grid[1]

    @property
    def pitch(self) -> int:
        """Floats from one window's channels to the next's."""
        return row_pitch(self.source[2])


def row_pitch(columns: int) -> int:
    """Floats from one row of a plane to the next: whole cache lines, not a multiple of 1 KiB."""
    return align(columns, 16) + (16 if columns % 256 == 0 else 0)


@dataclass(frozen=True)
class WinogradPlan:
    """A tiling, the product's tile, tiles per block, the split among threads; cycles per thread.

    `prepared`: filters are transformed in advance.
    """

    tiling: Tiling
    tile: Tile
    split: Split
    block: int
    threads: int
    cycles: float
    prepared: bool = False

    @property
    def label(self) -> str:
        """The plan's name among the plans of a convolution."""
        once = " prepared" if self.prepared else ""
        return f"winograd{self.tiling.size} {self.split} {self.tile.label} in {self.block}{once}"

    @property
    def window_plane(self) -> int:
        """Floats of one point's windows: those of a block, or of all tiles if shared."""
        rows = self.tiling.tiles if self.split == "COLUMNS" else self.block
        return rows * self.tiling.pitch + 16

    @property
    def filter_plane(self) -> int:
        """Floats of one point's filters in a panel."""
        return self.tiling.source[2] * self.tile.columns + 16

    @property
    def product_plane(self) -> int:
        """Floats of one point's products of a block and a panel."""
        return self.block * self.tile.columns + 16

    @property
    def scratch(self) -> Pair:
        """Floats shared by all threads, and floats per thread."""
        windows, planes = self.window_plane, self.tiling.planes
        if self.split == "COLUMNS":
            filters = 0 if self.prepared else self.filter_plane
            return planes * windows, planes * (filters + self.product_plane)
        shared = 0 if self.prepared else self.filter_floats
        return shared, planes * (windows + self.product_plane)

    @property
    def filter_floats(self) -> int:
        """Floats of the transformed filters: whole panels."""
        panels = -(-self.tiling.columns // self.tile.columns)
        return panels * self.tiling.planes * self.filter_plane

    @property
    def filters(self) -> Prepared:
        """The transformed filters as a prepared form of the weights."""
        tiling, tile = self.tiling, self.tile
        key = ("winograd", tiling.size, tiling.backward, tile.lanes, tile.columns)
        return Prepared(WEIGHTS, 4 * self.filter_floats, key)

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        shared, own = self.scratch
        return 4 * (shared + own * self.threads)


def tiling_of(window: ConvWindow, backward: bool, size: int) -> Tiling | None:
    """Return the tiling of a convolution or its input gradient; None if it has none."""
    plain = window.stride == window.dilation == (1, 1) and window.groups == 1
    if window.kernel != (3, 3) or not plain:
        return None
    if backward:
        source, result = (*window.output, window.features), window.size
        before = (2 - window.before[0], 2 - window.before[1])
        return Tiling(
            size,
            window.images,
            source,
            result=result,
            columns=window.channels,
            before=before,
            backward=True,
        )
    source = (*window.size, window.channels)
    return Tiling(
        size,
        window.images,
        source,
        result=window.output,
        columns=window.features,
        before=window.before,
        backward=False,
    )


def winograd_plans(
    window: ConvWindow,
    backward: bool,
    device: Device,
    sizes: tuple[int, ...] = SIZES,
    prepared: bool = False,
) -> list[WinogradPlan]:
    """Return all plans of these tile sizes; none if the method does not apply."""
    tilings = (tiling_of(window, backward, size) for size in sizes)
    return [plan for tiling in tilings if tiling for plan in _plans(tiling, device, prepared)]


def _plans(tiling: Tiling, device: Device, prepared: bool) -> Iterator[WinogradPlan]:
    machine, threads = machine_of(device), device.cpu.cores
    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    for split in splits:
        for block in _blocks(tiling, split, device):
            for tile in tiles(machine, block, tiling.columns, tiling.pitch):
                cycles = _cycles(tiling, tile, split, block=block, device=device, prepared=prepared)
                yield WinogradPlan(
                    tiling,
                    tile,
                    split,
                    block=block,
                    threads=threads,
                    cycles=cycles,
                    prepared=prepared,
                )


def _blocks(tiling: Tiling, split: Split, device: Device) -> Iterator[int]:
    """Tiles in a block: equal parts of a thread's share, of a size that stays in its cache."""
    columns = min(64, tiling.columns)
    if split == "ROWS":
        share, floats = -(-tiling.tiles // device.cpu.cores), tiling.pitch + columns
    else:
        share, floats = tiling.tiles, columns
    most = max(4, device.cpu.l2_bytes // 6 // (tiling.planes * floats))
    fewest = -(-share // most)
    yield from dict.fromkeys(-(-share // count) for count in range(fewest, fewest + 3))


def _cycles(
    tiling: Tiling, tile: Tile, split: Split, block: int, device: Device, prepared: bool
) -> float:
    """Cycles of the busiest thread."""
    machine, threads = machine_of(device), device.cpu.cores
    channels, columns, planes = tiling.source[2], tiling.columns, tiling.planes
    window, filter_, product = (
        cycles * max(0.5, tile.lanes / 16) for cycles in TRANSFORM_CYCLES[tiling.size]
    )
    windows = tiling.tiles * -(-channels // tile.lanes) * window
    filters = 0.0 if prepared else channels * -(-columns // tile.lanes) * filter_
    blocks = -(-tiling.tiles // block)
    if split == "ROWS":
        mine, width = -(-blocks // threads), columns
        count = min(mine * block, tiling.tiles)
        windows *= count / tiling.tiles
        filters /= threads
        streamed = mine * planes * channels * columns
    else:
        panels = -(-columns // tile.columns)
        mine, width = blocks, min(columns, -(-panels // threads) * tile.columns)
        count = tiling.tiles
        windows /= threads
        filters *= width / columns
        streamed = planes * channels * width
    products = count * -(-width // tile.lanes) * product
    last = count - (mine - 1) * block
    multiply = (mine - 1) * multiply_cycles(machine, tile, block, columns=width, depth=channels)
    multiply += multiply_cycles(machine, tile, last, columns=width, depth=channels)
    reloaded = mine * -(-block // tile.rows) * planes * channels * width
    moved = STREAM_CYCLES * streamed + RELOAD_CYCLES * reloaded
    if split == "COLUMNS":
        moved += ROWS_CYCLES * planes * channels * count * -(-width // tile.columns)
    shared = planes * channels * (columns if split == "ROWS" else tiling.tiles)
    moved += STREAM_CYCLES * shared / threads
    if 4 * shared > (device.cpu.l3_bytes or device.cpu.l2_bytes) // 2:
        moved += MEMORY_CYCLES * shared / threads
    return windows + filters + products + planes * multiply + moved


class Planned(Protocol):
    """Common properties of the transforms' plans."""

    @property
    def tiling(self) -> Tiling:
        """How tiles cover the images."""

    @property
    def tile(self) -> Tile:
        """The tile of the product."""

    @property
    def split(self) -> str:
        """The split among threads."""

    @property
    def threads(self) -> int:
        """Number of threads."""

    @property
    def scratch(self) -> Pair:
        """Floats shared by all threads, and floats per thread."""

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""


def winograd_kernel(
    opened: Anchored, window: ConvWindow, plan: WinogradPlan, device: Device
) -> Kernel:
    """Emit the kernel of a plan."""
    tiling = plan.tiling
    sizes = {
        "PE_M": plan.block,
        "PE_OTHER_M": tiling.tiles % plan.block or plan.block,
        "PE_TRANSPOSED": int(tiling.backward),
        "PE_WINDOW_PLANE": plan.window_plane,
        "PE_FILTER_PLANE": plan.filter_plane,
        "PE_PRODUCT_PLANE": plan.product_plane,
    }
    if not plan.prepared:
        return emit_planned(opened, window, plan, device=device, source="winograd", sizes=sizes)
    kernel = emit_planned(
        opened,
        window,
        plan,
        device=device,
        source="winograd",
        sizes={**sizes, "PE_PREPARED": 1},
        prepared=FILTERS,
    )
    return replace(kernel, preparation=_filters_kernel(plan, device))


FILTERS = Parameter("float", "filters")
"""The parameter that replaces the weights if filters are prepared."""


def _filters_kernel(plan: WinogradPlan, device: Device) -> Kernel:
    """Emit the transform of the weights: all panels of filters."""
    tiling = plan.tiling
    macros = {
        **_point_macros(tiling, plan.tile),
        "PE_TRANSPOSED": int(tiling.backward),
        "PE_FILTER_PLANE": plan.filter_plane,
    }
    shape = f"{tiling.source[2]}x{tiling.columns}"
    return define_kernel(
        name=f"pe_f32_filters_{shape}_winograd{tiling.size}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=[Parameter("float", "weights"), Parameter("float", "filters", written=True)],
        body=[f"{SYMBOL}_transform_all(w, filters, weights);"],
        prelude=template(macros, "", "winograd_prepare"),
    )


def emit_planned(
    opened: Anchored,
    window: ConvWindow,
    plan: Planned,
    device: Device,
    source: str,
    sizes: Mapping[str, object],
    prepared: Parameter | None = None,
) -> Kernel:
    """Emit a kernel from the template `source`; `sizes` are its own parameters.

    `prepared` replaces the second operand.
    """
    shared, own = plan.scratch
    macros = {
        **_point_macros(plan.tiling, plan.tile),
        **sizes,
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
        "PE_SHARED_FLOATS": shared,
        "PE_OWN_FLOATS": own,
    }
    first, second = opened.names
    arguments = ", ".join([first, prepared.name if prepared else second, "scratch"])
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_winograd{plan.tiling.size}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=[*opened.parameters, *([prepared] if prepared else [])],
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=note(describe(opened.anchor.op, window)) + template(macros, opened.store, source),
        scratch_bytes=plan.scratch_bytes,
    )


def _point_macros(tiling: Tiling, tile: Tile) -> dict[str, object]:
    """Parameters of winograd_points.inc.h, and of the product's tile."""
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": tile.lanes,
        "PE_MR": tile.rows,
        "PE_NV": tile.vectors,
        "PE_N": tiling.columns,
        "PE_TILE": tiling.size,
        "PE_IMAGES": tiling.images,
        "PE_SOURCE_H": tiling.source[0],
        "PE_SOURCE_W": tiling.source[1],
        "PE_SOURCE_C": tiling.source[2],
        "PE_OUT_H": tiling.result[0],
        "PE_OUT_W": tiling.result[1],
        "PE_TOP": tiling.before[0],
        "PE_LEFT": tiling.before[1],
        "PE_TILES_H": tiling.grid[0],
        "PE_TILES_W": tiling.grid[1],
        "PE_WINDOW_PITCH": tiling.pitch,
    }
