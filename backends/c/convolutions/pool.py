"""Kernels of pooling: `max_pool2d`, `avg_pool2d` and their gradients.

The templates are runtime/kernels/max_pool.inc.h and avg_pool.inc.h, with vectors of channels.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.compiler.ir import Node, Shape, Value
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

IMAGES: dict[str, Callable[[Node], tuple[Value, Value]]] = {
    "max_pool2d": lambda node: (node.operands[0], node.result),
    "max_pool2d_dx": lambda node: (node.operands[0], node.operands[1]),
    "avg_pool2d": lambda node: (node.operands[0], node.result),
    "avg_pool2d_dx": lambda node: (node.result, node.operands[0]),
}
"""Each op's images before and after pooling, or values of the same shapes."""


@dataclass(frozen=True)
class Pooling:
    """A pooling window sliding over images x (n, h, w, c), with the result y (n, oh, ow, c)."""

    x: Shape
    y: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    whole_windows: bool


@dataclass(frozen=True)
class PoolCut:
    """Lanes of channels, and whether threads split the channels because there are few rows."""

    lanes: int
    by_channels: bool

    @property
    def label(self) -> str:
        """The split among threads, and the lanes of a vector."""
        return f"{'CHANNELS' if self.by_channels else 'ROWS'} x{self.lanes}"


def choose_pool(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Partition a pooling, its gradient, or a fusion around one.

    A maximum's gradient with an epilogue is summed in scratch.
    """
    nodes = node.attrs["body"].nodes if node.op == "fusion" else [node]
    anchor = next(inner for inner in nodes if inner.op in IMAGES)
    pooling = _pooling_of(anchor)
    lanes = min(machine_of(device).widths, key=lambda width: (align(pooling.x[3], width), -width))
    rows, vectors = anchor.result.shape[:2], -(-pooling.x[3] // lanes)
    by_channels = anchor.op.startswith("avg") and math.prod(rows) < device.cpu.cores <= vectors
    summed = anchor.op == "max_pool2d_dx" and len(nodes) > 1
    scratch = 4 * align(anchor.result.type.size, 16) if summed else 0
    cut = PoolCut(lanes, by_channels)
    return plain_choice(node, device, cut.label, scratch_bytes=scratch, spec=cut)


def emit_pool(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit a pooling, its gradient, or a fusion around one."""
    opened, cut = open_fusion(node, device), choice.spec
    assert isinstance(cut, PoolCut)
    pooling = _pooling_of(opened.anchor)
    if opened.anchor.op.startswith("avg"):
        return _avg_pool(opened, pooling, cut, device)
    return _max_pool(opened, pooling, cut.lanes, scratch_bytes=choice.scratch_bytes, device=device)


POOL = KernelFamily(choose_pool, emit_pool)


def _pooling_of(node: Node) -> Pooling:
    attrs = node.attrs
    x, y = IMAGES[node.op](node)
    return Pooling(
        x=x.shape,
        y=y.shape,
        kernel=tuple(attrs["kernel"]),
        stride=tuple(attrs["stride"]),
        padding=tuple(attrs["padding"]),
        dilation=tuple(attrs.get("dilation", (1, 1))),
        whole_windows=attrs.get("count_include_pad", True) or not any(attrs["padding"]),
    )


def _name(opened: Anchored, p: Pooling, lanes: int) -> str:
    shape, kernel, stride = ("x".join(map(str, s)) for s in (p.x, p.kernel, p.stride))
    return f"pe_f32_{opened.title}_{shape}_k{kernel}_s{stride}_{lanes}"


def _comment(opened: Anchored, p: Pooling) -> str:
    text = f"{opened.anchor.op}: x{list(p.x)} y{list(p.y)}, window {p.kernel}, stride {p.stride}"
    return f"/* {text}, padding {p.padding} */\n"


def _max_pool(
    opened: Anchored, p: Pooling, lanes: int, scratch_bytes: int, device: Device
) -> Kernel:
    gradient = opened.anchor.op == "max_pool2d_dx"
    macros: dict[str, object] = _image_macros(p.x, p.y, lanes, device) | {
        "PE_TAPS_H": p.kernel[0],
        "PE_TAPS_W": p.kernel[1],
        "PE_STEP_H": p.stride[0],
        "PE_STEP_W": p.stride[1],
        "PE_TOP": p.padding[0],
        "PE_LEFT": p.padding[2],
        "PE_GAP_H": p.dilation[0],
        "PE_GAP_W": p.dilation[1],
        "PE_GRADIENT": int(gradient),
        "PE_DIRECT": int(opened.plain is not None),
    }
    arguments = ", ".join(opened.names)
    if gradient:
        arguments += f", {opened.plain or 'scratch'}"
    return define_kernel(
        name=_name(opened, p, lanes),
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {arguments});", *opened.end],
        prelude=_comment(opened, p) + template(macros, opened.store, "max_pool"),
        scratch_bytes=scratch_bytes,
    )


def _avg_pool(opened: Anchored, p: Pooling, cut: PoolCut, device: Device) -> Kernel:
    gradient = opened.anchor.op == "avg_pool2d_dx"
    source, result = (p.y, p.x) if gradient else (p.x, p.y)
    macros: dict[str, object] = _image_macros(source, result, cut.lanes, device) | {
        "PE_SPLIT": "PE_SPLIT_COLUMNS" if cut.by_channels else "PE_SPLIT_ROWS",
        **_rectangle(p, gradient, 0, "H"),
        **_rectangle(p, gradient, 1, "W"),
    }
    return define_kernel(
        name=_name(opened, p, cut.lanes),
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {opened.names[0]});", *opened.end],
        prelude=_comment(opened, p) + template(macros, opened.store, "avg_pool"),
    )


def _rectangle(p: Pooling, gradient: bool, dimension: int, letter: str) -> Mapping[str, object]:
    """The source pixels of result pixel i, and the number of pixels of x in their window."""
    k, s = p.kernel[dimension], p.stride[dimension]
    before, size, count = p.padding[2 * dimension], p.x[1 + dimension], p.y[1 + dimension]
    pooled = "(source)" if gradient else "(out)"
    start = f"{pooled} * {s} - {before}"
    low = f"({start} < 0 ? 0 : {start})"
    high = f"({start} + {k} > {size} ? {size} : {start} + {k})"
    counted = str(k) if p.whole_windows else f"({high} - {low})"
    if gradient:  # windows o with o s - before <= i < o s - before + k; the shift keeps / exact
        first = f"((i) + {before + s - k + count * s}) / {s} - {count}"
        end = f"((i) + {before}) / {s} + 1"
    else:
        first, end = f"(i) * {s} - {before}", f"(i) * {s} - {before} + {k}"
    return {
        f"PE_LOW_{letter}(i)": f"({first})",
        f"PE_HIGH_{letter}(i)": f"({end})",
        f"PE_COUNT_{letter}(out, source)": counted,
    }


def _image_macros(source: Shape, result: Shape, lanes: int, device: Device) -> dict[str, object]:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_IMAGES": source[0],
        "PE_SOURCE_H": source[1],
        "PE_SOURCE_W": source[2],
        "PE_OUT_H": result[1],
        "PE_OUT_W": result[2],
        "PE_CHANNELS": source[3],
        "PE_THREADS": device.cpu.cores,
    }
