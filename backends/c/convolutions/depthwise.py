"""Kernels of depthwise convolutions: `conv2d`, `conv2d_dx` and `conv2d_dw` with one window per
channel.

The templates are runtime/kernels/depthwise.inc.h (forward and input gradient, which differ only in
the pixel of each tap) and depthwise_dw.inc.h. This module computes the blocks of each row: the
inner ones are equal, the others are listed with the source columns that exist.
"""

from dataclasses import dataclass

from pockengine.backends.c.elementwise.epilogue import Anchored
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.products.product import Split
from pockengine.backends.c.tile import CoreModel, machine_of
from pockengine.backends.native.kernel import SYMBOL, Kernel, align, define_kernel, note
from pockengine.backends.window import ConvWindow, Pair, describe
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

MOST_PIXELS, MOST_PIXELS_OF_SHORT_ROWS, MOST_PIXELS_BY_LANE = 8, 14, 16
"""Result pixels in a block, which share registers with a row of taps.

Larger blocks load less but wait longer for memory: they pay if a row of results is short and
cached, and on small cores, which are bound by instructions.
"""

UNEVEN = 1.15
"""Threads split rows, unless that makes the busiest thread exceed its share by this factor: rows
stay with the thread that wrote them, channels do not.
"""


MOST_UNROLLED = 16384
"""Maximum source pixels times taps of one row in all unrolled copies of a block. Compiling takes
seconds for this many, and minutes for the windows of 256 taps of an audio filter bank.
"""


@dataclass(frozen=True)
class Slide:
    """The mapping of source pixels to result pixels in one direction of a depthwise convolution.

    The block that starts at result column s sees `span` source columns from `numerator * s /
    denominator + offset` on. Forward, tap t of result row r reads source row `r * stride - before +
    t * gap`, and column i of a block meets it at result column `(i - t * gap) / stride`. Backward,
    it reads source row `(r + before - t * gap) / stride` and meets column `i * stride + t * gap -
    shift`; if a division leaves a remainder, there is no such pixel. Pairs are (rows, columns).
    """

    backward: bool
    source: Pair
    result: Pair
    stride: Pair
    gap: Pair
    before: int
    shift: int
    numerator: int
    denominator: int
    offset: int
    block: int
    span: int

    def first_column(self, start: int) -> int:
        """First source column of the block that starts at this result column."""
        return start * self.numerator // self.denominator + self.offset


def slide_forward(window: ConvWindow, machine: CoreModel, lanes: int) -> Slide:
    """Source column i of a block meets tap k at result pixel (i - k gap) / stride."""
    stride, gap = window.stride[1], window.dilation[1]
    block = block_pixels(window.output[1], 1, machine, lanes)
    return Slide(
        backward=False,
        source=window.size,
        result=window.output,
        stride=window.stride,
        gap=window.dilation,
        before=window.before[0],
        shift=0,
        numerator=stride,
        denominator=1,
        offset=-window.before[1],
        block=block,
        span=(block - 1) * stride + (window.kernel[1] - 1) * gap + 1,
    )


def slide_backward(window: ConvWindow, machine: CoreModel, lanes: int) -> Slide:
    """dy's column j of a block meets tap k at input pixel j stride + k gap - left."""
    stride, gap = window.stride[1], window.dilation[1]
    top, left = window.before
    block = block_pixels(window.size[1], stride, machine, lanes)
    phase = left % stride
    lowest = (phase - (window.kernel[1] - 1) * gap) // stride
    highest = (block - 1 + phase) // stride
    return Slide(
        backward=True,
        source=window.output,
        result=window.size,
        stride=window.stride,
        gap=window.dilation,
        before=top,
        shift=phase - lowest * stride,
        numerator=1,
        denominator=stride,
        offset=left // stride + lowest,
        block=block,
        span=highest - lowest + 1,
    )


def block_pixels(pixels: int, step: int, machine: CoreModel, lanes: int) -> int:
    """Pixels of a block: a multiple of `step` that leaves little waste in the last block."""
    limit = MOST_PIXELS
    if machine.by_lane:
        limit = MOST_PIXELS_BY_LANE * machine.lanes // lanes
    elif machine.registers == 32 and pixels <= MOST_PIXELS_OF_SHORT_ROWS:
        limit = MOST_PIXELS_OF_SHORT_ROWS
    most = max(limit // step * step, step)
    sizes = range(step, min(most, align(pixels, step)) + 1, step)
    return min(sizes, key=lambda size: (-(-pixels // size), size))


@dataclass(frozen=True)
class DepthwiseSpec:
    """A slide of `lanes` channels at once, in chunks of channels; `parts` floats of scratch."""

    window: ConvWindow
    slide: Slide
    lanes: int
    split: Split
    threads: int
    chunk: int
    size: int
    parts: int


def is_unrolled(op: str, window: ConvWindow, device: Device) -> bool:
    """Whether a depthwise convolution, or one of its gradients, has blocks of bounded size."""
    make = slide_backward if op == "conv2d_dx" else slide_forward
    machine = machine_of(device)
    slide = make(window, machine, _lanes(window, machine))
    copies = 1 + len(row_blocks(slide)[2])
    return copies * slide.span * window.kernel[1] <= MOST_UNROLLED


def _lanes(window: ConvWindow, machine: CoreModel) -> int:
    """Channels at once: such that few are padded."""
    widths = {*machine.widths, machine.streamed}
    return min(widths, key=lambda width: (align(window.channels, width), -width))


def choose_depthwise(op: str, window: ConvWindow, device: Device) -> Choice:
    """Choose the blocks of a depthwise convolution or one of its gradients."""
    machine, cores = machine_of(device), device.cpu.cores
    make = slide_backward if op == "conv2d_dx" else slide_forward
    lanes = _lanes(window, machine)
    rows = window.images * (window.output[0] if op != "conv2d_dx" else window.size[0])
    split = _split(rows, -(-window.channels // lanes), cores)
    size = align(window.taps * window.channels, 16)
    parts = size * (cores if split == "ROWS" else 1) if op == "conv2d_dw" else 0
    spec = DepthwiseSpec(
        window=window,
        slide=make(window, machine, lanes),
        lanes=lanes,
        split=split,
        threads=cores,
        chunk=max(lanes, device.cpu.l1d_bytes // 8 // window.taps // lanes * lanes),
        size=size,
        parts=parts,
    )
    return Choice(f"depthwise {split}", scratch_bytes=4 * parts, spec=spec)


def depthwise_kernel(opened: Anchored, spec: DepthwiseSpec, device: Device) -> Kernel:
    """Emit a depthwise convolution or one of its gradients."""
    op, window, slide = opened.anchor.op, spec.window, spec.slide
    macros = _macros(window, slide, spec.lanes) | {
        "PE_CHUNK": spec.chunk,
        "PE_SPLIT": f"PE_SPLIT_{spec.split}",
        "PE_THREADS": spec.threads,
    }
    scratch, name = "", "depthwise"
    if op == "conv2d_dw":
        macros |= {"PE_PART_FLOATS": spec.size}
        scratch, name = ", scratch", "depthwise_dw"
    first, second = opened.names
    return define_kernel(
        name=f"pe_f32_{opened.title}_depthwise_{window}_{slide.block}x{spec.lanes}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {first}, {second}{scratch});", *opened.end],
        prelude=note(describe(op, window)) + template(macros, opened.store, name),
        scratch_bytes=4 * spec.parts,
    )


def _split(rows: int, vectors: int, threads: int) -> Split:
    uneven_rows = -(-rows // threads) * threads / rows
    uneven_channels = -(-vectors // threads) * threads / vectors
    return "COLUMNS" if uneven_rows > UNEVEN and uneven_channels < uneven_rows else "ROWS"


def _macros(window: ConvWindow, slide: Slide, lanes: int) -> dict[str, object]:
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
        "PE_SOURCE_ROW(row, tap)": _source_row(slide),
        "PE_SOURCE_COLUMN(column)": f"({scaled})",
        "PE_TARGET(i, tap)": _target(slide),
        "PE_BLOCK": slide.block,
        "PE_SPAN": slide.span,
        "PE_PEELED": int(_is_peeled(slide)),
        "PE_INNER_BEGIN": begin,
        "PE_INNER_END": end,
        "PE_EDGE_BLOCKS(BLOCK)": " ".join(f"BLOCK{edge}" for edge in edges),
    }


def _is_peeled(slide: Slide) -> bool:
    """Whether the first row of taps has code of its own, which starts the sums with products.

    It pays for rows that the compiler does not unroll itself, and for blocks of many sums.
    """
    return slide.block > 4 and not (slide.backward and slide.stride[0] > 1)


def _source_row(slide: Slide) -> str:
    """Return the C expression, of `row` and `tap`, for the source row of a result row."""
    stride, gap = slide.stride[0], slide.gap[0]
    if not slide.backward:
        return f"(row) * {stride} - {slide.before} + (tap) * {gap}"
    reached = f"((row) + {slide.before} - (tap) * {gap})"
    return f"({reached} % {stride} ? -1 : {reached} / {stride})"


def _target(slide: Slide) -> str:
    """Return the C expression, of `i` and `tap`, for the result column of a block."""
    stride, gap = slide.stride[1], slide.gap[1]
    if slide.backward:
        return f"((i) * {stride} + (tap) * {gap} - {slide.shift})"
    return f"(((i) - (tap) * {gap}) % {stride} ? -1 : ((i) - (tap) * {gap}) / {stride})"


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
