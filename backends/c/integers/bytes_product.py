"""Products of two i8 operands with the CPU's byte dot-product instructions.

The templates (runtime/kernels/bytes_*.inc.h) pack the second operand in the CPU's order
(runtime/simd/pe_dot.h), in scratch. That takes a quarter to a half of an instruction per byte at
each run of the kernel, and works for weights that the step has just changed. Tiles of sums live in
registers.
"""

from dataclasses import dataclass, replace
from math import ceil

from pockengine.backends.c.convolutions.window_macros import window_macros
from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.integers.integer_vectors import by_integer_vectors, integer_lanes
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import SYMBOL, Kernel, Parameter, align, define_kernel, note
from pockengine.backends.window import ConvWindow, describe
from pockengine.compiler.ir import DType, Node
from pockengine.devices.isa import ISAS
from pockengine.devices.schema import Device

BLOCK_BYTES = 16384
"""Bytes of A that are multiplied with one panel after another: half of a small cache."""

PANEL = 16
"""Minimum columns of a panel, and minimum rows of a panel of A."""


@dataclass(frozen=True)
class BytesSpec:
    """The window, the product `op`, and the tile: `rows` times `blocks` of `lanes` sums.

    A row of A takes `taps` times `tap_bytes`; `direct`: it has this layout in memory.
    """

    window: ConvWindow
    op: str
    lanes: int
    rows: int
    blocks: int
    epilogue_lanes: int
    threads: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and steps of the product."""
        w = self.window
        if self.op == "conv2d_dw":
            return w.channels * self.joined_taps, w.features, w.pixels
        if self.op == "conv2d_dx":
            return w.images * w.size[0] * w.size[1], w.channels, w.taps * self.tap_bytes
        return w.pixels, w.features, w.taps * self.tap_bytes

    @property
    def joined_taps(self) -> int:
        """Taps of a row whose channels are rows of A together: few bytes of neighboring pixels."""
        w = self.window
        few = w.kernel[1] * w.channels <= PANEL and w.dilation[1] == 1
        return w.kernel[1] if self.op == "conv2d_dw" and few else 1

    @property
    def tap_steps(self) -> int:
        """Bytes of a row of A that one tap reads."""
        return self.window.features if self.op == "conv2d_dx" else self.window.channels

    @property
    def tap_bytes(self) -> int:
        """Their size in bytes, rounded up to whole words if B is read transposed."""
        return align(self.tap_steps, 4) if self.op == "conv2d_dx" else self.tap_steps

    @property
    def depth(self) -> int:
        """Groups of 4 steps."""
        return ceil(self.sizes[2] / 4)

    @property
    def direct(self) -> bool:
        """Whether rows of A are contiguous in memory, in whole words."""
        return self.window.is_matmul and self.tap_steps % 4 == 0

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return max(self.lanes, PANEL)

    @property
    def panels(self) -> int:
        """Panels of B."""
        return ceil(self.sizes[1] / self.panel)

    @property
    def block_rows(self) -> int:
        """Rows of A in a block: whole tiles."""
        return max(1, BLOCK_BYTES // (4 * self.depth) // self.rows) * self.rows

    @property
    def scratch_bytes(self) -> int:
        """Panels, initial sums, statistics of the panels, and rows of A."""
        panels = self.panels * self.panel * 4 * (self.depth + 1) + 4 * self.threads
        if self.op == "conv2d_dw":
            return panels + ceil(self.sizes[0] / PANEL) * PANEL * 4 * self.depth
        return panels + (0 if self.direct else self.threads * self.block_rows * 4 * self.depth)

    @property
    def label(self) -> str:
        """The tile's unique name, unlike its string."""
        return f"bytes {self.rows}x{self.blocks}x{self.lanes}"

    def __str__(self) -> str:
        return f"{self.rows}x{self.blocks * self.lanes}"


def bytes_spec(anchor: Node, op: str, window: ConvWindow, device: Device) -> BytesSpec | None:
    """Return how a device multiplies bytes; None if it or the product is unsupported.

    A small machine has no scratch; groups and a second zero point use the plain kernels.
    """
    isa = ISAS[device.cpu.isa]
    integers = all(operand.dtype is DType.I8 for operand in anchor.operands)
    if not isa.dot_lanes or device.freestanding or not integers:
        return None
    if window.groups > 1 or anchor.attrs["zeros"][1]:
        return None
    spec = BytesSpec(
        window,
        op,
        isa.dot_lanes,
        rows=1,
        blocks=1,
        epilogue_lanes=isa.dot_lanes,
        threads=device.cpu.cores,
    )
    rows, columns, _ = spec.sizes
    strip = spec.panel // spec.lanes
    found = [
        (_steps(rows, columns, count, width=blocks * spec.lanes, lanes=spec.lanes), -count, blocks)
        for blocks in range(1, isa.dot_sums + 1)
        if strip % blocks == 0 or blocks % strip == 0
        for count in range(1, min(rows, isa.dot_sums // blocks, PANEL) + 1)
        if op != "conv2d_dw" or PANEL % count == 0
    ]
    _, count, blocks = min(found)
    lanes = _epilogue_lanes(columns, blocks * spec.lanes, spec.lanes)
    return replace(spec, rows=-count, blocks=blocks, epilogue_lanes=lanes)


def _steps(rows: int, columns: int, count: int, width: int, lanes: int) -> int:
    """Instructions of one group of all tiles: products, words of A, blocks of B."""
    blocks, strips = ceil(columns / lanes), ceil(columns / width)
    full, tail = divmod(rows, count)

    def row(height: int) -> int:
        return height * (3 * blocks + 2 * strips) + blocks

    return full * row(count) + tail * row(1)


def _epilogue_lanes(columns: int, width: int, lanes: int) -> int:
    """Lanes finished at once: 16 bytes if available."""
    if lanes >= PANEL or width <= lanes:
        return lanes
    wide = width >= PANEL and (columns % PANEL == 0 or columns % PANEL > PANEL // 2)
    return PANEL if wide else max(lanes, PANEL // 2)


def bytes_kernel(node: Node, spec: BytesSpec, device: Device) -> Kernel:
    """Emit a product, or a fusion around one."""
    lanes = epilogue_lanes(node, spec.epilogue_lanes, device)
    opened = open_fusion(node, device, by_integers=lanes == integer_lanes(device))
    name = "bytes_dw" if spec.op == "conv2d_dw" else "bytes_rows"
    macros = window_macros(spec.window, spec.op == "conv2d_dx") | _macros(opened, spec, lanes)
    return define_kernel(
        name=f"pe_i8_i8_{opened.title}_{spec.window}_{spec}",
        isa=device.cpu.isa,
        parameters=read_alone(node, opened),
        body=[
            opened.io,
            f"{SYMBOL}_run(w, &io, {', '.join(opened.names)}, scratch);",
            *opened.end,
        ],
        prelude=note(describe(spec.op, spec.window)) + template(macros, opened.store, name),
        scratch_bytes=spec.scratch_bytes,
    )


def epilogue_lanes(node: Node, lanes: int, device: Device) -> int:
    """Return the lanes of an epilogue: few floats if no vector computes with them."""
    anchored = split_fusion(node)
    columns = anchored.anchor.result.shape[-1]
    if not integer_lanes(device) or by_integer_vectors(anchored.after, device, columns):
        return lanes
    values = [value for inner in anchored.after for value in (*inner.operands, *inner.results)]
    floats = any(value.dtype is DType.F32 for value in values)
    return min(lanes, machine_of(device).lanes) if floats else lanes


def read_alone(node: Node, opened: Anchored) -> list[Parameter]:
    """Return the parameters; those that every row rereads are marked as not aliasing a result.

    In C a result of bytes may alias anything, so each row would reload its channels' scales.
    """
    size = opened.anchor.result.type.size
    values = [*node.operands, *node.results]
    return [
        replace(each, alone=not each.written and 4 * value.type.size < size)
        for each, value in zip(opened.parameters, values, strict=True)
    ]


def _macros(opened: Anchored, spec: BytesSpec, lanes: int) -> dict[str, object]:
    rows, columns, steps = spec.sizes
    gradient = spec.op == "conv2d_dw"
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_L": spec.lanes,
        "PE_P": spec.panel,
        "PE_VL": lanes,
        "PE_MR": spec.rows,
        "PE_NV": spec.blocks,
        "PE_M": rows,
        "PE_N": columns,
        "PE_K": steps,
        "PE_DEPTH": spec.depth,
        "PE_PANELS": spec.panels,
        "PE_MB": spec.block_rows,
        "PE_THREADS": spec.threads,
        "PE_A_ZERO": f"({opened.anchor.attrs['zeros'][0]})",
        "PE_A_PITCH": 4 * spec.depth,
        "PE_A_GROUP": 4 * PANEL if gradient else 0,
        "PE_B_TRANSPOSED": int(spec.op == "conv2d_dx"),
        "PE_DIRECT": int(spec.direct),
        "PE_TAP_BYTES": spec.tap_bytes,
        "PE_TAP_STEPS": spec.tap_steps,
        "PE_TAPS": spec.window.taps,
        **({"PE_JOINED": spec.joined_taps} if gradient else {}),
        "PE_BACKWARD": int(spec.op == "conv2d_dx"),
    }
