"""Weight gradients of 3x3 convolutions of stride 1 by Winograd's method, F(3 x 3, r x r).

As in winograd.py, (r + 2)² products replace 9 r²; here they are summed over all tiles before the
inverse transform to the taps. The template is runtime/kernels/winograd_dw.inc.h.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pockengine.backends.c.convolutions.winograd import (
    MEMORY_CYCLES,
    RELOAD_CYCLES,
    ROWS_CYCLES,
    SIZES,
    STREAM_CYCLES,
    Tiling,
    emit_planned,
    row_pitch,
    tiling_of,
)
from pockengine.backends.c.elementwise.epilogue import Anchored
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.window import ConvWindow, Pair
from pockengine.devices.schema import Device

Split = Literal["INNER", "COLUMNS"]

TRANSFORM_CYCLES = {2: (50.0, 35.0, 45.0), 4: (160.0, 90.0, 90.0)}
"""Cycles to transform 16 channels of a window, of a tile of dy, and of the sums, by r."""

MOST_CHANNELS = 64
"""Channels whose sums, times a panel, fit in the second-level cache."""


@dataclass(frozen=True)
class WinogradGradientPlan:
    """A tiling, the product's tile, the split among threads, tiles and channels in a block."""

    tiling: Tiling
    tile: Tile
    split: Split
    block: int
    channels: int
    threads: int
    cycles: float

    @property
    def label(self) -> str:
        """The plan's name among the plans of a weight gradient."""
        return f"winograd{self.tiling.size} {self.split} {self.tile.label} in {self.block}"

    @property
    def gradient_pitch(self) -> int:
        """Floats from one tile of transformed dy to the next."""
        return row_pitch(self.tiling.columns)

    @property
    def planes(self) -> tuple[int, int, int]:
        """Floats of one point's windows, tiles of dy, and sums of a block and a panel."""
        return (
            self.block * self.tiling.pitch + 16,
            self.block * self.gradient_pitch + 16,
            self.channels * self.tile.columns + 16,
        )

    @property
    def scratch(self) -> Pair:
        """Floats shared by all threads, and floats per thread."""
        windows, gradients, sums = (self.tiling.planes * plane for plane in self.planes)
        units = -(-self.tiling.source[2] // self.channels)
        panels = -(-self.tiling.columns // self.tile.columns)
        if self.split == "INNER":
            return 0, units * panels * sums + windows + gradients
        if self.tiling.tiles > self.block:  # any number of threads may share the panels
            return windows + gradients + units * panels * sums, 0
        return windows + gradients, sums

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        shared, own = self.scratch
        return 4 * (shared + own * self.threads)


def winograd_gradient_plans(
    window: ConvWindow, device: Device, sizes: tuple[int, ...] = SIZES
) -> list[WinogradGradientPlan]:
    """Return all plans of these tile sizes; none if the method does not apply."""
    tilings = (tiling_of(window, False, size) for size in sizes)
    return [plan for tiling in tilings if tiling for plan in _plans(tiling, device)]


def _plans(tiling: Tiling, device: Device) -> Iterator[WinogradGradientPlan]:
    machine, threads = machine_of(device), device.cpu.cores
    splits: tuple[Split, ...] = ("INNER", "COLUMNS")
    channels = -(-tiling.source[2] // -(-tiling.source[2] // MOST_CHANNELS))
    for split in splits:
        for block in _blocks(tiling, split, device):
            for tile in tiles(machine, channels, tiling.columns):
                cycles = _cycles(tiling, tile, split, block=block, channels=channels, device=device)
                yield WinogradGradientPlan(
                    tiling,
                    tile,
                    split,
                    block=block,
                    channels=channels,
                    threads=threads,
                    cycles=cycles,
                )


def _blocks(tiling: Tiling, split: Split, device: Device) -> Iterator[int]:
    """Tiles in a block: balanced, of a size that fits the target cache."""
    cpu = device.cpu
    if split == "INNER":
        share, floats = -(-tiling.tiles // cpu.cores), cpu.l2_bytes // 10
    else:
        share, floats = tiling.tiles, (cpu.l3_bytes or cpu.l2_bytes) // 6
    most = max(4, floats // (tiling.planes * (tiling.pitch + row_pitch(tiling.columns))))
    fewest = -(-share // most)
    yield from dict.fromkeys(-(-share // count) for count in range(fewest, fewest + 3))


def _cycles(
    tiling: Tiling, tile: Tile, split: Split, block: int, channels: int, device: Device
) -> float:
    """Cycles of the busiest thread."""
    machine, threads, planes = machine_of(device), device.cpu.cores, tiling.planes
    inputs, columns = tiling.source[2], tiling.columns
    window, gradient, taps = (
        cycles * max(0.5, tile.lanes / 16) for cycles in TRANSFORM_CYCLES[tiling.size]
    )
    vectors = -(-columns // tile.lanes)
    transforms = tiling.tiles * (-(-inputs // tile.lanes) * window + vectors * gradient)
    finish = inputs * vectors * taps
    panels = -(-columns // tile.columns)
    if split == "INNER":
        count, width, reload_ = -(-tiling.tiles // threads), columns, RELOAD_CYCLES
        finish += planes * inputs * columns * threads * STREAM_CYCLES
    else:
        count, reload_ = tiling.tiles, ROWS_CYCLES
        width = min(columns, -(-panels // threads) * tile.columns)
    blocks, units = -(-count // block), -(-inputs // channels)
    depth = -(-count // blocks)
    of_rows = partial(multiply_cycles, machine, tile, columns=width, depth=depth, transposed=True)
    multiply = blocks * ((units - 1) * of_rows(channels) + of_rows(inputs - (units - 1) * channels))
    read = count * (inputs * -(-width // tile.columns) + width * units) * reload_
    waiting = planes * inputs * width
    again = 2 * RELOAD_CYCLES if 4 * waiting > device.cpu.l2_bytes else RELOAD_CYCLES
    waited = (blocks - 1) * waiting * 2 * again
    shared = planes * block * (inputs + columns)
    if split == "COLUMNS":
        waited += blocks * STREAM_CYCLES * shared / threads
    if 4 * shared > (device.cpu.l3_bytes or device.cpu.l2_bytes) // 2:
        waited += blocks * MEMORY_CYCLES * shared / threads
    return (transforms + finish) / threads + planes * (multiply + read) + waited


def winograd_gradient_kernel(
    opened: Anchored, window: ConvWindow, plan: WinogradGradientPlan, device: Device
) -> Kernel:
    """Emit the kernel of a plan."""
    channels = plan.tiling.source[2]
    windows, gradients, sums = plan.planes
    sizes = {
        "PE_M": plan.channels,
        "PE_OTHER_M": channels % plan.channels or plan.channels,
        "PE_BLOCK": plan.block,
        "PE_GRADIENT_PITCH": plan.gradient_pitch,
        "PE_WINDOW_PLANE": windows,
        "PE_GRADIENT_PLANE": gradients,
        "PE_PRODUCT_PLANE": sums,
    }
    return emit_planned(opened, window, plan, device=device, source="winograd_dw", sizes=sizes)
