"""Products of two i8 operands by Helium, the vectors of Arm's microcontrollers (MVE).

An instruction adds 16 products to one sum, so operands must be contiguous along the depth. Weights
are packed that way for four channels at a time; for weight gradients both operands are transposed,
into scratch that is small beside any activation. A depthwise convolution multiplies widened
channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.family import plain_choice
from pockengine.backends.c.integers.bytes_product import read_alone
from pockengine.backends.c.integers.pairs import Macros, grids_text, product_macros
from pockengine.backends.c.products.gemm import template
from pockengine.backends.native.kernel import SYMBOL, Kernel, align, define_kernel, note
from pockengine.backends.native.numbers import closed
from pockengine.backends.native.text import Text
from pockengine.backends.window import ConvWindow, describe
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

HELIUM = "helium"
"""The instruction set with byte blocks."""

BLOCK = 16
"""Bytes of a block."""

MOST_TURNED = 16384
"""Maximum bytes of a transposed operand: scratch must stay small beside activations."""


@dataclass(frozen=True)
class HeliumSpec:
    """A convolution, which of its products, and the scratch bytes per thread."""

    window: ConvWindow
    op: str
    thread_bytes: int


def choose_helium(node: Node, op: str, window: ConvWindow, device: Device) -> Choice | None:
    """Choose blocks if the device has them and the kernels support the product."""
    anchor = split_fusion(node).anchor
    integers = all(operand.dtype is DType.I8 for operand in anchor.operands)
    if device.cpu.isa != HELIUM or not integers or anchor.attrs["zeros"][1]:
        return None
    flat = _flat(window) if window.is_matmul else window
    size = _thread_bytes(op, flat)
    if not size:
        return None
    spec = HeliumSpec(flat, op, size)
    scratch = size * device.cpu.cores
    return plain_choice(node, device, "blocks", scratch_bytes=scratch, spec=spec)


def _flat(window: ConvWindow) -> ConvWindow:
    """View the pixels of all images as one row: products with a matrix have no other rows."""
    row = (1, window.pixels)
    return replace(window, images=1, size=row, output=row)


def _thread_bytes(op: str, window: ConvWindow) -> int:
    """Return the scratch bytes per thread; 0 if there is no kernel."""
    if op == "conv2d_dw":
        depth = align(window.pixels, BLOCK)
        turned = align(window.channels, 4) * depth
        return turned + 4 * depth if window.is_matmul and turned <= MOST_TURNED else 0
    if window.is_depthwise:
        return window.taps * BLOCK
    if window.groups > 1 or (op == "conv2d_dx" and not window.is_matmul):
        return 0
    line = window.kernel[1] * (window.features if op == "conv2d_dx" else window.channels)
    packed, copied = 4 * window.kernel[0] * align(line, BLOCK), window.kernel[0] * line
    return packed + (0 if window.is_matmul else align(copied, BLOCK))


def helium_kernel(node: Node, spec: HeliumSpec, device: Device) -> Kernel:
    """Emit a product, or a fusion around one."""
    opened, window = open_fusion(node, device), spec.window
    write = _depthwise_text if window.is_depthwise else _product_text
    prelude, runs = write(opened, spec)
    arguments = f"(w, &io, {', '.join(opened.names)}, scratch);"
    return define_kernel(
        name=f"pe_blocks_{opened.title}_{window}",
        isa=device.cpu.isa,
        parameters=read_alone(node, opened),
        body=[opened.io, *(f"{SYMBOL}_{run}{arguments}" for run in runs), *opened.end],
        prelude=closed(note(describe(spec.op, window)) + prelude),
        scratch_bytes=spec.thread_bytes * device.cpu.cores,
    )


def _common(opened: Anchored, spec: HeliumSpec) -> Macros:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": 4,
        "PE_A_ZERO": f"({opened.anchor.attrs['zeros'][0]})",
        "PE_THREAD_BYTES": spec.thread_bytes,
    }


def _product_text(opened: Anchored, spec: HeliumSpec) -> tuple[Text, Sequence[str]]:
    window, turned = spec.window, spec.op == "conv2d_dw"
    if turned:  # rows are the channels of x; the depth is the pixels
        row = (1, window.channels)
        window = replace(window, size=row, output=row, channels=window.pixels)
    macros = _common(opened, spec) | product_macros(window, spec.op)
    padded = any(window.padding) or window.dilation != (1, 1)
    macros |= {"PE_PADDED": int(padded), "PE_TURNED": int(turned)}
    return template(macros, opened.store, "helium_product"), ["run"]


def _depthwise_text(opened: Anchored, spec: HeliumSpec) -> tuple[Text, Sequence[str]]:
    return grids_text(
        opened, spec.window, spec.op, common=_common(opened, spec), name="helium_depthwise"
    )
