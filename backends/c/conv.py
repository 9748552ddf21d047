"""Kernels of `conv2d`, `conv2d_dx` and `conv2d_dw`.

A 1x1 convolution of stride 1 is a matmul, with a larger stride it may be one of some pixels
(strided.py). A depthwise one has kernels of its own (depthwise.py), a 3x3 one may be cheaper by
Winograd's method (winograd.py). Everything else multiplies image windows, by conv.inc.h and
conv_dw.inc.h. Here a shape gets its tile, its blocks, and what threads share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.depthwise import depthwise_kernel
from pockengine.backends.c.epilogue import Anchored, open_fusion
from pockengine.backends.c.gemm import (
    TRANSPOSE_CYCLES,
    Product,
    Split,
    product_kernel,
    template,
)
from pockengine.backends.c.geometry import (
    Geometry,
    backward_geometry,
    forward_geometry,
    segment_depth,
)
from pockengine.backends.c.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.backends.c.options import DEFAULT, Candidate, Options, as_candidates
from pockengine.backends.c.strided import is_strided_product, strided_kernel
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.c.window import (
    ImageWindow,
    Pair,
    Window,
    describe,
    forward_grid,
    image_window,
    tap_order,
    window_of,
)
from pockengine.backends.c.winograd import WinogradPlan, winograd_kernel, winograd_plans
from pockengine.backends.c.winograd_dw import GradientPlan, gradient_kernel, gradient_plans
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device

MOST_DEPTH, MOST_CONFLICTING_DEPTH = 1024, 512
"""Inner dimension of a block, in floats, unless a single segment is larger. The second is for
weights whose rows lie a multiple of 2 KiB apart: a panel's rows share cache sets, and few fit."""

SAMPLE_DEPTH = 256
"""Positions for which the estimate of a weight gradient is made."""

WINOGRAD_GAIN = 0.9
"""Winograd's method is taken where it needs at most this share of the direct kernel's cycles."""

LARGEST_PARTS = 200_000
"""Weight gradients up to this size are summed by each thread on its own, larger ones by columns."""


@dataclass(frozen=True)
class ConvPlan:
    """A tile, what threads share, the rows of positions in a block; a thread's cycles."""

    tile: Tile
    split: Split
    rows: int
    threads: int
    cycles: float

    @property
    def label(self) -> str:
        """The plan's name among the plans of a convolution."""
        return f"direct {self.split} {self.tile.label}"


def conv_kernel(node: Node, device: Device, options: Options = DEFAULT) -> Kernel:
    """Emit a convolution or one of its gradients, or a fusion around one.

    With `bf16` those that are plain products round their operands.
    """
    opened = open_fusion(node, device)
    window = window_of(opened.anchor)
    if window.is_matmul:
        return product_kernel(opened, pixel_product(opened.anchor, window), device, options)
    if is_strided_product(opened.anchor.op, window, device):
        return strided_kernel(opened, window, pixel_product(opened.anchor, window), device, options)
    if window.is_depthwise:
        return depthwise_kernel(opened, window, device)
    if opened.anchor.op == "conv2d_dw":
        return _weight_gradient(opened, window, device, options)
    return _convolution(opened, window, device, options)


def pixel_product(node: Node, window: Window) -> Product:
    """1x1: y = x w, dx = dy wᵀ, dw = xᵀ dy over all pixels."""
    pixels, c, o = window.pixels, window.channels, window.features
    if node.op == "conv2d":
        return Product(pixels, o, c, a_row=c, a_step=1, b_pitch=o)
    if node.op == "conv2d_dx":
        return Product(pixels, c, o, a_row=o, a_step=1, b_pitch=o, b_transposed=True)
    return Product(c, o, pixels, a_row=1, a_step=c, b_pitch=o)


def _convolution(opened: Anchored, window: Window, device: Device, options: Options) -> Kernel:
    """Forward: windows of x times w. Input gradient: windows of dy times w transposed."""
    backward = opened.anchor.op == "conv2d_dx"
    geometry = backward_geometry(window) if backward else forward_geometry(window)
    direct = _direct_plans(window, geometry, device)
    others = winograd_plans(window, backward, device) if options.winograd else []
    plans: list[Candidate[ConvPlan | WinogradPlan]]
    plans = [*as_candidates(direct), *as_candidates(others, WINOGRAD_GAIN)]
    plan = options.pick(f"{opened.anchor.op} {window.key}", plans)
    if isinstance(plan, WinogradPlan):
        return winograd_kernel(opened, window, plan, device)
    pitch = geometry.columns * (1 if backward else window.groups)
    block = _block_segments(geometry.segments, geometry.depths, pitch)
    unfinished = max(map(len, geometry.segments)) > block
    macros = _geometry_macros(geometry, window, plan) | {
        "PE_BLOCK_SEGMENTS": block,
        "PE_PARTIAL": int(unfinished),
    }
    size = align(opened.anchor.result.type.size, 16)
    sums = size if unfinished and opened.plain is None else 0
    weights = sum(grid.taps for grid in geometry.grids) * window.group_channels * window.features
    packed = align(weights, 16) if backward else 0
    floats = _window_floats(geometry.image, plan, geometry.step)
    windows = floats * (plan.threads if plan.split == "ROWS" else 1)
    partial = opened.plain or ("scratch" if sums else "NULL")
    scratch = [f"(float *)scratch + {sums}", f"(float *)scratch + {sums + packed}"]
    arguments = ", ".join([*opened.names, partial, *scratch])
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=describe(opened.anchor.op, window) + template(macros, opened.store, "conv"),
        scratch_bytes=4 * (sums + packed + windows),
    )


def _geometry_macros(g: Geometry, window: Window, plan: ConvPlan) -> dict[str, object]:
    order = tap_order(window, g.grids)
    return {
        **_common_macros(plan, g.columns, g.channels, window),
        **_window_macros(g.image, g.source, g.step),
        "PE_M": max(g.pixels),
        "PE_OTHER_M": min(g.pixels),
        "PE_GRIDS": len(g.grids),
        "PE_GRID_TABLE": _grid_table(g),
        "PE_SEGMENT_TABLE": ", ".join(str(offset) for each in g.segments for offset in each),
        "PE_ROWS": g.rows,
        "PE_OUT_H": g.result[0],
        "PE_OUT_W": g.result[1],
        "PE_OUT_STEP_H": g.out_step[0],
        "PE_OUT_STEP_W": g.out_step[1],
        "PE_TRANSPOSED": int(g.backward),
        "PE_TAPS": len(order),
        "PE_TAP_TABLE": ", ".join(map(str, order)),
        "PE_WINDOW_FLOATS": _window_floats(g.image, plan, g.step),
    }


def _weight_gradient(opened: Anchored, window: Window, device: Device, options: Options) -> Kernel:
    """Windows of x, transposed, times dy."""
    channels, columns, step = window.group_channels, window.group_features, window.stride
    grid, source = forward_grid(window), (*window.size, window.channels)
    image = image_window((grid,), source, step, window.groups)
    segments, depth = image.segments(grid), segment_depth(image, grid, channels)
    direct = _direct_gradient_plans(window, image, depth, device)
    others = gradient_plans(window, device) if options.winograd else []
    plans: list[Candidate[ConvPlan | GradientPlan]]
    plans = [*as_candidates(direct), *as_candidates(others, WINOGRAD_GAIN)]
    plan = options.pick(f"conv2d_dw {window.key}", plans)
    if isinstance(plan, GradientPlan):
        return gradient_kernel(opened, window, plan, device)
    size = align(opened.anchor.result.type.size, 16)
    taken, floats = _block_images(window, plan, device), _window_floats(image, plan, step)
    blocks = -(-window.images // taken) * -(-window.output[0] // plan.rows)
    unfinished = plan.split == "INNER" or blocks > 1
    macros = {
        **_common_macros(plan, columns, channels, window),
        **_window_macros(image, source, step),
        **_sum_macros(window, segments, depth),
        "PE_PARTIAL": int(unfinished),
        "PE_PART_FLOATS": size,
        "PE_BLOCK_IMAGES": taken,
        "PE_WINDOW_FLOATS": floats,
    }
    parts = size if unfinished and opened.plain is None else 0
    if plan.split == "INNER":
        parts = size * plan.threads
    windows = floats * (plan.threads if plan.split == "INNER" else taken)
    partial = "scratch" if parts else (opened.plain or "NULL")
    arguments = ", ".join([*opened.names, partial, f"(float *)scratch + {parts}"])
    return define_kernel(
        name=f"pe_f32_{opened.title}_{window}_{plan.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=describe(opened.anchor.op, window) + template(macros, opened.store, "conv_dw"),
        scratch_bytes=4 * (parts + windows),
    )


def _sum_macros(window: Window, segments: Sequence[int], depth: int) -> dict[str, object]:
    """Positions and result rows of a weight gradient."""
    return {
        "PE_M": depth,
        "PE_ROWS": window.output[0],
        "PE_COLUMNS": window.output[1],
        "PE_SEGMENTS": len(segments),
        "PE_SEGMENT_TABLE": ", ".join(map(str, segments)),
    }


def _block_segments(segments: Sequence[Sequence[int]], depths: Sequence[int], pitch: int) -> int:
    """Segments of a block: as even as possible, and few enough for the caches."""
    most, depth = max(map(len, segments)), max(depths)
    limit = MOST_DEPTH if pitch % 512 else MOST_CONFLICTING_DEPTH
    blocks = -(-most * depth // limit)
    return max(1, -(-most // blocks))


def _grid_table(g: Geometry) -> str:
    """C initialisers of the template's struct."""
    rows, first = [], 0
    for grid, offsets, depth in zip(g.grids, g.segments, g.depths, strict=True):
        numbers = [
            *(grid.rows.positions, grid.columns.positions),
            *(first, len(offsets), depth, grid.first_tap),
            *(grid.rows.out, grid.columns.out),
        ]
        first += len(offsets)
        rows.append(f"{{{', '.join(map(str, numbers))}}}")
    return ", ".join(rows)


def _common_macros(
    plan: ConvPlan, columns: int, channels: int, window: Window
) -> dict[str, object]:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": plan.tile.lanes,
        "PE_MR": plan.tile.rows,
        "PE_NV": plan.tile.vectors,
        "PE_N": columns,
        "PE_IMAGES": window.images,
        "PE_GROUPS": window.groups,
        "PE_CHANNELS": channels,
        "PE_BLOCK_ROWS": plan.rows,
        "PE_SPLIT": f"PE_SPLIT_{plan.split}",
        "PE_THREADS": plan.threads,
    }


def _window_macros(
    image: ImageWindow, source: tuple[int, int, int], step: Pair
) -> dict[str, object]:
    return {
        "PE_SOURCE_H": source[0],
        "PE_SOURCE_W": source[1],
        "PE_SOURCE_C": source[2],
        "PE_COPY": int(image.copied),
        "PE_PIXEL": image.pixel,
        "PE_LINE": image.line,
        "PE_FIRST_H": image.first[0],
        "PE_FIRST_W": image.first[1],
        "PE_WINDOW_W": image.width,
        "PE_STEP_H": step[0],
        "PE_STEP_W": step[1],
        "PE_REACH_H": image.reach,
    }


def _window_floats(image: ImageWindow, plan: ConvPlan, step: Pair) -> int:
    return align(image.lines(plan.rows, step[0]) * image.line, 16) if image.copied else 0


def _block_rows(image: ImageWindow, rows: int, step: Pair, device: Device, weights: int) -> int:
    """Rows of positions whose window fits into a quarter of the second-level cache.

    Large weights, or their gradient, are gone through anew for each block: then into half of it.
    """
    budget = device.cpu.l2_bytes // (8 if 4 * weights > device.cpu.l2_bytes else 16)
    fitting = [n for n in range(1, rows + 1) if image.lines(n, step[0]) * image.line <= budget]
    most = max(fitting, default=1)
    return -(-rows // -(-rows // most))


def _block_images(window: Window, plan: ConvPlan, device: Device) -> int:
    """Images in a block of a weight gradient: several, where its sums are far beyond the cache.

    Each block reads and writes all sums. The images' windows take a quarter of the last cache.
    """
    weights = window.taps * window.group_channels * window.features
    whole = plan.split == "COLUMNS" and plan.rows == window.output[0]
    if not whole or weights <= device.cpu.l2_bytes:
        return 1
    pixels = (window.size[0] + window.kernel[0]) * (window.size[1] + window.kernel[1])
    most = max(1, device.cpu.l3_bytes // (16 * pixels * window.channels))
    return -(-window.images // -(-window.images // most))


def _direct_plans(window: Window, g: Geometry, device: Device) -> list[ConvPlan]:
    """Every tile and split, by the estimate of tile.py."""
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
        one = multiply_cycles(machine, tile, pixels, width, int(taps * g.channels))
        return share * one + transposed

    splits: tuple[Split, ...] = ("ROWS", "COLUMNS")
    found = tiles(machine, pixels, g.columns, g.step[1] * g.image.pixel)
    block = _block_rows(g.image, g.rows, g.step, device, weights)
    return [
        ConvPlan(tile, split, block, threads, cycles(tile, split))
        for tile in found
        for split in splits
    ]


def _direct_gradient_plans(
    window: Window, image: ImageWindow, depth: int, device: Device
) -> list[ConvPlan]:
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
        one = multiply_cycles(machine, tile, depth, width, SAMPLE_DEPTH)
        return one * times * window.groups / (threads if split == "INNER" else 1)

    most = min(rows, window.output[0])
    block = _block_rows(image, most, window.stride, device, weights)
    found = tiles(machine, depth, columns)
    return [ConvPlan(tile, split, block, threads, cycles(tile)) for tile in found]
