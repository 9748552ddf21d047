"""Kernels of `conv2d`, `conv2d_dx` and `conv2d_dw`.

A 1x1 convolution of stride 1 is a matmul. A depthwise one has kernels of its own (depthwise.py).
Everything else gathers blocks of pixels and multiplies: runtime/kernels/conv.inc.h and
conv_dw.inc.h. Here a shape gets its tile, its blocks, and what threads share.
"""

from dataclasses import dataclass

from pockengine.backends.c.depthwise import depthwise_kernel
from pockengine.backends.c.epilogue import Anchored, open_fusion
from pockengine.backends.c.gemm import (
    Product,
    Split,
    plan_product,
    product_kernel,
    template,
)
from pockengine.backends.c.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.c.window import (
    Grid,
    Window,
    backward_grids,
    describe,
    forward_grid,
    tap_order,
    window_of,
)
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device

MOST_DEPTH = 1024
"""Inner dimension of a block, in floats, unless a single tap is larger."""

LARGEST_PARTS = 200_000
"""Weight gradients up to this size are summed by each thread on its own, larger ones by columns."""


@dataclass(frozen=True)
class WindowPlan:
    """A tile, what threads share, and the positions and taps of a gathered block."""

    tile: Tile
    split: Split
    rows: int
    taps: int
    threads: int

    def pitch(self, channels: int) -> int:
        """Row length of a gathered block; rows a power of two apart would share cache sets."""
        length = self.taps * channels
        return length + 16 if length % 256 == 0 else length

    def floats(self, channels: int) -> int:
        """Size of a gathered block."""
        return align(self.rows * self.pitch(channels), 16)


def conv_kernel(node: Node, device: Device) -> Kernel:
    """Emit a convolution or one of its gradients, or a fusion around one."""
    opened = open_fusion(node)
    window = window_of(opened.anchor)
    if window.is_matmul:
        product = _as_product(opened.anchor, window)
        return product_kernel(opened, product, plan_product(product, device), device.cpu.isa)
    if window.is_depthwise:
        return depthwise_kernel(opened, window, device)
    if opened.anchor.op == "conv2d_dw":
        return _weight_gradient(opened, window, device)
    return _convolution(opened, window, device)


def _as_product(node: Node, window: Window) -> Product:
    """1x1: y = x w, dx = dy wᵀ, dw = xᵀ dy over all pixels."""
    pixels, c, o = window.pixels, window.channels, window.features
    if node.op == "conv2d":
        return Product(pixels, o, c, a_row=c, a_step=1, b_pitch=o)
    if node.op == "conv2d_dx":
        return Product(pixels, c, o, a_row=o, a_step=1, b_pitch=o, b_transposed=True)
    return Product(c, o, pixels, a_row=1, a_step=c, b_pitch=o)


def _convolution(opened: Anchored, window: Window, device: Device) -> Kernel:
    """Forward: gather x, multiply by w. Input gradient: gather dy, multiply by w transposed."""
    backward = opened.anchor.op == "conv2d_dx"
    grids = backward_grids(window) if backward else (forward_grid(window),)
    channels, columns = window.group_channels, window.group_features
    if backward:
        channels, columns = columns, channels
    plan = _plan_convolution(window, grids, channels, columns, device)
    order = tap_order(window, grids)
    unfinished = max(grid.taps for grid in grids) > plan.taps
    macros = _window_macros(plan, channels, columns, window, grids) | {
        "PE_SOURCE_H": window.output[0] if backward else window.size[0],
        "PE_SOURCE_W": window.output[1] if backward else window.size[1],
        "PE_SOURCE_C": channels * window.groups,
        "PE_STEP_H": 1 if backward else window.stride[0],
        "PE_STEP_W": 1 if backward else window.stride[1],
        "PE_GRIDS": len(grids),
        "PE_GRID_TABLE": ", ".join(grid.initialiser() for grid in grids),
        "PE_IMAGES": window.images,
        "PE_OUT_H": window.size[0] if backward else window.output[0],
        "PE_OUT_W": window.size[1] if backward else window.output[1],
        "PE_OUT_STEP_H": window.stride[0] if backward else 1,
        "PE_OUT_STEP_W": window.stride[1] if backward else 1,
        "PE_TRANSPOSED": int(backward),
        "PE_TAPS": len(order),
        "PE_TAP_TABLE": ", ".join(map(str, order)),
        "PE_PARTIAL": int(unfinished),
    }
    size = opened.anchor.result.type.size
    sums = align(size, 16) if unfinished and opened.plain is None else 0
    packed = align(len(order) * channels * columns * window.groups, 16) if backward else 0
    windows = plan.floats(channels) * (plan.threads if plan.split == "ROWS" else 1)
    source, weights = opened.names
    partial = opened.plain or ("scratch" if sums else "NULL")
    call = f"{source}, {weights}, {partial}, (float *)scratch + {sums}"
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[
            opened.io,
            f"{SYMBOL}_run(w, &io, {call}, (float *)scratch + {sums + packed});",
        ],
        prelude=describe(opened.anchor.op, window) + template(macros, opened.store, "conv"),
        scratch_bytes=4 * (sums + packed + windows),
    )


def _weight_gradient(opened: Anchored, window: Window, device: Device) -> Kernel:
    """Gather x, multiply its transpose by dy."""
    channels, columns = window.group_channels, window.group_features
    plan = _plan_weight_gradient(window, device)
    grid = forward_grid(window)
    size = align(opened.anchor.result.type.size, 16)
    unfinished = plan.split == "INNER" or window.pixels > plan.rows
    macros = _window_macros(plan, channels, columns, window, (grid,)) | {
        "PE_SOURCE_H": window.size[0],
        "PE_SOURCE_W": window.size[1],
        "PE_SOURCE_C": window.channels,
        "PE_STEP_H": window.stride[0],
        "PE_STEP_W": window.stride[1],
        "PE_GRID_TABLE": grid.initialiser(),
        "PE_POSITIONS": window.pixels,
        "PE_TAPS": window.taps,
        "PE_PARTIAL": int(unfinished),
        "PE_PART_FLOATS": size,
    }
    parts = 0
    if plan.split == "INNER":
        parts = size * plan.threads
    elif unfinished and opened.plain is None:
        parts = size
    windows = plan.floats(channels) * (plan.threads if plan.split == "INNER" else 1)
    x, dy = opened.names
    partial = "scratch" if parts else (opened.plain or "NULL")
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[
            opened.io,
            f"{SYMBOL}_run(w, &io, {x}, {dy}, {partial}, (float *)scratch + {parts});",
        ],
        prelude=describe(opened.anchor.op, window) + template(macros, opened.store, "conv_dw"),
        scratch_bytes=4 * (parts + windows),
    )


def _window_macros(
    plan: WindowPlan, channels: int, columns: int, window: Window, grids: tuple[Grid, ...]
) -> dict[str, object]:
    adjacent = window.groups == 1 and all(grid.columns.gap == 1 for grid in grids)
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": plan.tile.lanes,
        "PE_MR": plan.tile.rows,
        "PE_NV": plan.tile.vectors,
        "PE_N": columns,
        "PE_GROUPS": window.groups,
        "PE_CHANNELS": channels,
        "PE_ADJACENT": int(adjacent),
        "PE_WINDOW_ROWS": plan.rows,
        "PE_WINDOW_TAPS": plan.taps,
        "PE_GATHER_PITCH": plan.pitch(channels),
        "PE_WINDOW_FLOATS": plan.floats(channels),
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
    }


def _window_budget(device: Device) -> int:
    """Floats of a gathered block: a quarter of the second-level cache."""
    return max(4096, device.cpu.l2_bytes // 16)


def _plan_convolution(
    window: Window, grids: tuple[Grid, ...], channels: int, columns: int, device: Device
) -> WindowPlan:
    threads = device.cpu.cores
    most_taps = max(1, max(grid.taps for grid in grids))
    taps = min(most_taps, max(1, MOST_DEPTH // channels))
    positions = [window.images * grid.positions for grid in grids]
    machine = machine_of(device)

    def cycles(tile: Tile, split: Split) -> float:
        total = 0.0
        for grid, count in zip(grids, positions, strict=True):
            rows, width = -(-count // tile.rows) * tile.rows, columns
            if split == "ROWS":
                rows = -(-rows // tile.rows // threads) * tile.rows
            else:
                panels = -(-columns // tile.columns)
                width = min(columns, -(-panels // threads) * tile.columns)
            total += multiply_cycles(machine, tile, rows, width, max(1, grid.taps) * channels)
        return total

    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    choices = [(t, s) for t in tiles(machine, max(positions), columns) for s in splits]
    tile, split = min(choices, key=lambda choice: cycles(*choice))
    rows = _window_budget(device) // (taps * channels) // tile.rows * tile.rows
    rows = max(tile.rows, min(rows, 1024, -(-max(positions) // tile.rows) * tile.rows))
    return WindowPlan(tile, split, rows, taps, threads)


def _plan_weight_gradient(window: Window, device: Device) -> WindowPlan:
    threads, channels, columns = device.cpu.cores, window.group_channels, window.group_features
    machine = machine_of(device)
    divisors = [n for n in range(1, window.taps + 1) if window.taps % n == 0]
    taps = max([n for n in divisors if n * channels <= MOST_DEPTH], default=1)
    small = window.taps * channels * window.features <= LARGEST_PARTS
    split: Split = "INNER" if small else "COLUMNS"

    def cycles(tile: Tile) -> float:
        share = columns
        if split == "COLUMNS":
            panels = -(-columns // tile.columns)
            share = min(columns, -(-panels // threads) * tile.columns)
        return multiply_cycles(machine, tile, taps * channels, share, 256)

    tile = min(tiles(machine, taps * channels, columns), key=cycles)
    rows = max(32, min(512, _window_budget(device) // (taps * channels)))
    return WindowPlan(tile, split, min(rows, window.pixels), taps, threads)
