"""Kernels of depthwise convolutions: `conv2d`, `conv2d_dx` and `conv2d_dw` with a window a channel.

The templates are runtime/kernels/depthwise.inc.h (forward and input gradient, which differ only in
which pixel a tap goes to) and depthwise_dw.inc.h. Here a shape gets the blocks of each row: the
inner ones are alike, the others are listed with the source columns that exist.
"""

from dataclasses import dataclass

from pockengine.backends.c.epilogue import Anchored
from pockengine.backends.c.gemm import Split, template
from pockengine.backends.c.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.backends.c.tile import Machine, machine_of
from pockengine.backends.c.window import Window, describe
from pockengine.devices.schema import Device

MOST_PIXELS, MOST_PIXELS_OF_SHORT_ROWS, MOST_PIXELS_BY_LANE = 8, 14, 16
"""Result pixels in a block, which share registers with a row of taps.

Larger blocks load less but wait longer for memory: they pay where a row of results is short and
comes from the caches, and on small cores, where instructions count.
"""

UNEVEN = 1.15
"""Rows are shared unless the busiest thread has this much more than its part: rows stay with the
thread that wrote them, channels do not."""


@dataclass(frozen=True)
class Slide:
    """How source columns meet result columns in one direction of a depthwise convolution.

    The block that starts at result column s sees `span` source columns from `numerator * s /
    denominator + offset` on; `target`, `row` are the C expressions of the template.
    """

    source: tuple[int, int]
    result: tuple[int, int]
    numerator: int
    denominator: int
    offset: int
    block: int
    span: int
    row: str
    target: str

    def first_column(self, start: int) -> int:
        """First source column of the block that starts at this result column."""
        return start * self.numerator // self.denominator + self.offset


def slide_forward(window: Window, machine: Machine) -> Slide:
    """Source column i of a block meets tap k at result pixel (i - k gap) / stride."""
    (sh, sw), (dh, dw) = window.stride, window.dilation
    block = block_pixels(window.output[1], 1, machine)
    return Slide(
        source=window.size,
        result=window.output,
        numerator=sw,
        denominator=1,
        offset=-window.before[1],
        block=block,
        span=(block - 1) * sw + (window.kernel[1] - 1) * dw + 1,
        row=f"(row) * {sh} - {window.before[0]} + (tap) * {dh}",
        target=f"(((i) - (tap) * {dw}) % {sw} ? -1 : ((i) - (tap) * {dw}) / {sw})",
    )


def slide_backward(window: Window, machine: Machine) -> Slide:
    """dy's column j of a block meets tap k at input pixel j stride + k gap - left."""
    (sh, sw), (dh, dw) = window.stride, window.dilation
    top, left = window.before
    block = block_pixels(window.size[1], sw, machine)
    phase = left % sw
    lowest = (phase - (window.kernel[1] - 1) * dw) // sw
    highest = (block - 1 + phase) // sw
    reached = f"((row) + {top} - (tap) * {dh})"
    return Slide(
        source=window.output,
        result=window.size,
        numerator=1,
        denominator=sw,
        offset=left // sw + lowest,
        block=block,
        span=highest - lowest + 1,
        row=f"({reached} % {sh} ? -1 : {reached} / {sh})",
        target=f"((i) * {sw} + (tap) * {dw} - {phase - lowest * sw})",
    )


def block_pixels(pixels: int, step: int, machine: Machine) -> int:
    """Pixels of a block: a multiple of `step`, such that the last block wastes little."""
    limit = MOST_PIXELS
    if machine.by_lane:
        limit = MOST_PIXELS_BY_LANE
    elif machine.registers == 32 and pixels <= MOST_PIXELS_OF_SHORT_ROWS:
        limit = MOST_PIXELS_OF_SHORT_ROWS
    most = max(limit // step * step, step)
    sizes = range(step, min(most, align(pixels, step)) + 1, step)
    return min(sizes, key=lambda size: (-(-pixels // size), size))


def depthwise_kernel(opened: Anchored, window: Window, device: Device) -> Kernel:
    """Emit a depthwise convolution or one of its gradients."""
    op = opened.anchor.op
    machine = machine_of(device)
    make = slide_backward if op == "conv2d_dx" else slide_forward
    slide = make(window, machine)
    lanes = min(machine.widths, key=lambda width: (align(window.channels, width), -width))
    rows = window.images * (window.output[0] if op != "conv2d_dx" else window.size[0])
    split = _split(rows, -(-window.channels // lanes), device.cpu.cores)
    macros = _macros(window, slide, lanes) | {
        "PE_CHUNK": max(lanes, device.cpu.l1d_bytes // 8 // window.taps // lanes * lanes),
        "PE_SPLIT": f"PE_SPLIT_{split}",
        "PE_THREADS": device.cpu.cores,
    }
    scratch, name = "", "depthwise"
    parts = 0
    if op == "conv2d_dw":
        size = align(opened.anchor.result.type.size, 16)
        parts = size * (device.cpu.cores if split == "ROWS" else 1)
        macros |= {"PE_PART_FLOATS": size}
        scratch, name = ", scratch", "depthwise_dw"
    first, second = opened.names
    return define_kernel(
        name=f"pe_f32_{opened.title}_depthwise_{window}_{slide.block}x{lanes}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {first}, {second}{scratch});", *opened.end],
        prelude=describe(op, window) + template(macros, opened.store, name),
        scratch_bytes=4 * parts,
    )


def _split(rows: int, vectors: int, threads: int) -> Split:
    uneven_rows = -(-rows // threads) * threads / rows
    uneven_channels = -(-vectors // threads) * threads / vectors
    return "COLUMNS" if uneven_rows > UNEVEN and uneven_channels < uneven_rows else "ROWS"


def _macros(window: Window, slide: Slide, lanes: int) -> dict[str, object]:
    begin, end, edges = row_blocks(slide)
    scaled = f"(column) * {slide.numerator} / {slide.denominator} + {slide.offset}"
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_IMAGES": window.images,
        "PE_SOURCE_H": slide.source[0],
        "PE_SOURCE_W": slide.source[1],
        "PE_OUT_H": slide.result[0],
        "PE_OUT_W": slide.result[1],
        "PE_CHANNELS": window.channels,
        "PE_TAPS_H": window.kernel[0],
        "PE_TAPS_W": window.kernel[1],
        "PE_SOURCE_ROW(row, tap)": slide.row,
        "PE_SOURCE_COLUMN(column)": f"({scaled})",
        "PE_TARGET(i, tap)": slide.target,
        "PE_BLOCK": slide.block,
        "PE_SPAN": slide.span,
        "PE_INNER_BEGIN": begin,
        "PE_INNER_END": end,
        "PE_EDGE_BLOCKS(BLOCK)": " ".join(f"BLOCK{edge}" for edge in edges),
    }


def row_blocks(slide: Slide) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Begin and end of a row's inner blocks, and (column, pixels, first, last) of the others."""
    inner, edges = [], []
    for start in range(0, slide.result[1], slide.block):
        pixels = min(slide.block, slide.result[1] - start)
        column = slide.first_column(start)
        first, last = max(0, -column), min(slide.span, slide.source[1] - column)
        if (pixels, first, last) == (slide.block, 0, slide.span):
            inner.append(start)
        else:
            edges.append((start, pixels, first, max(first, last)))
    if not inner:
        return 0, 0, edges
    return inner[0], inner[-1] + slide.block, edges
