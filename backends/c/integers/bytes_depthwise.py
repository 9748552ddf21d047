"""Depthwise convolutions of two operands of i8, channels as lanes (kernels/bytes_depthwise*.h).

The input gradient, for stride 1, is the convolution of dy with the flipped weights.
"""

from dataclasses import dataclass

from pockengine.backends.c.convolutions.window_macros import window_macros
from pockengine.backends.c.elementwise.epilogue import open_fusion
from pockengine.backends.c.integers.bytes_product import epilogue_lanes, read_alone
from pockengine.backends.c.integers.integer_vectors import integer_lanes
from pockengine.backends.c.products.gemm import template
from pockengine.backends.native.kernel import SYMBOL, Kernel, align, define_kernel, note
from pockengine.backends.window import ConvWindow, describe
from pockengine.compiler.ir import DType, Node
from pockengine.devices.isa import ISAS
from pockengine.devices.schema import Device

PIXELS = 4
"""Pixels of a tile: their sums, taps and one source row fit in registers."""

LEAST_LANES = 8
"""Minimum channels processed at once, if vectors are not wider."""


MOST_TAPS = 1024
"""Maximum number of taps, since the compiler unrolls them all."""


@dataclass(frozen=True)
class DepthwiseSpec:
    """The window, the product `op`, the lanes, and the threads with scratch."""

    window: ConvWindow
    op: str
    lanes: int
    threads: int

    @property
    def patch_bytes(self) -> int:
        """Bytes of the source patch of a tile's pixels."""
        w = self.window
        step = w.stride[1] if self.op == "conv2d" else 1
        reach = (PIXELS - 1) * step + (w.kernel[1] - 1) * w.dilation[1] + 1
        return align(((w.kernel[0] - 1) * w.dilation[0] + 1) * reach * w.channels)

    @property
    def scratch_bytes(self) -> int:
        """One patch per thread; the weight gradient copies none."""
        return 0 if self.op == "conv2d_dw" else self.threads * self.patch_bytes

    @property
    def label(self) -> str:
        """The tile."""
        return f"bytes {PIXELS}x{self.lanes}"


def depthwise_spec(
    anchor: Node, op: str, window: ConvWindow, device: Device
) -> DepthwiseSpec | None:
    """Return how a device vectorizes over channels; None to use the plain kernels."""
    isa = ISAS[device.cpu.isa]
    integers = all(operand.dtype is DType.I8 for operand in anchor.operands)
    moves = op != "conv2d_dx" or window.stride == (1, 1)
    if not (isa.dot_lanes and integers and moves and window.is_depthwise):
        return None
    if device.freestanding or anchor.attrs["zeros"][1] or window.taps > MOST_TAPS:
        return None
    lanes = max(isa.dot_lanes, LEAST_LANES)
    return DepthwiseSpec(window, op, lanes, device.cpu.cores)


def depthwise_bytes_kernel(node: Node, spec: DepthwiseSpec, device: Device) -> Kernel:
    """Emit a depthwise convolution, one of its gradients, or a fusion around one."""
    window, backward = spec.window, spec.op == "conv2d_dx"
    lanes = epilogue_lanes(node, spec.lanes, device)
    opened = open_fusion(node, device, by_integers=lanes == integer_lanes(device))
    macros = window_macros(window, backward) | {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_L": spec.lanes,
        "PE_VL": lanes,
        "PE_A_ZERO": f"({opened.anchor.attrs['zeros'][0]})",
    }
    gradient = spec.op == "conv2d_dw"
    if not gradient:
        macros |= {"PE_T": PIXELS, "PE_FLIPPED": int(backward), "PE_THREADS": spec.threads}
        macros["PE_PATCH_BYTES"] = spec.patch_bytes
    if backward:
        reach = [(taps - 1) * gap for taps, gap in zip(window.kernel, window.dilation, strict=True)]
        top, left = (a - b for a, b in zip(reach, window.before, strict=True))
        macros |= {"PE_TOP": f"({top})", "PE_LEFT": f"({left})"}
    name = "bytes_depthwise_dw" if gradient else "bytes_depthwise"
    return define_kernel(
        name=f"pe_i8_i8_{opened.title}_{window}_{PIXELS}x{spec.lanes}",
        isa=device.cpu.isa,
        parameters=read_alone(node, opened),
        body=[
            opened.io,
            f"{SYMBOL}_run(w, &io, {', '.join(opened.names)}{'' if gradient else ', scratch'});",
            *opened.end,
        ],
        prelude=note(describe(spec.op, window)) + template(macros, opened.store, name),
        scratch_bytes=spec.scratch_bytes,
    )
