"""Strided 1x1 convolutions and their gradients: products over the strided pixels.

y = x w and dw = xᵀ dy read the strided pixels of x, gathered into scratch; dx = dy wᵀ is computed
in scratch and then scattered over the image, with zeros elsewhere. The product is a function of
gemm.py, called by the kernel emitted here.
"""

from dataclasses import dataclass

from pockengine.backends.c.elementwise.epilogue import Fused, open_fusion
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.c.products.copies import WIDE_LANES
from pockengine.backends.c.products.gemm import product_text, template
from pockengine.backends.c.products.product import ProductSpec, choose_product
from pockengine.backends.c.products.product_shape import MatmulShape
from pockengine.backends.c.tile import machine_of
from pockengine.backends.native.kernel import (
    SYMBOL,
    Kernel,
    align,
    define_function,
    define_kernel,
    note,
)
from pockengine.backends.native.numbers import closed
from pockengine.backends.native.text import Code
from pockengine.backends.window import ConvWindow, describe
from pockengine.compiler.ir import Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class StridedSpec:
    """A product over the strided pixels, which `rows` floats of scratch hold."""

    window: ConvWindow
    product: ProductSpec
    rows: int

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        return 4 * self.rows + self.product.scratch_bytes


def pixel_product(op: str, window: ConvWindow) -> MatmulShape:
    """1x1: y = x w, dx = dy wᵀ, dw = xᵀ dy over all pixels."""
    pixels, c, o = window.pixels, window.channels, window.features
    if op == "conv2d":
        return MatmulShape(pixels, o, c, a_row=c, a_step=1, b_pitch=o)
    if op == "conv2d_dx":
        return MatmulShape(pixels, c, o, a_row=o, a_step=1, b_pitch=o, b_transposed=True)
    return MatmulShape(c, o, pixels, a_row=1, a_step=c, b_pitch=o)


def is_strided_product(op: str, window: ConvWindow, device: Device) -> bool:
    """Whether a convolution or gradient is best computed as a product of strided pixels.

    Weight gradients always are. The others copy more than the direct kernel, but that one reads the
    weights again for every few rows of pixels. Weights as large as a second-level cache of 2 MB
    take half the time as products on Emerald Rapids, with 16 lanes and with 8.
    """
    alike = (
        window.kernel == (1, 1)
        and window.padding == (0, 0, 0, 0)
        and window.groups == 1
        and window.stride != (1, 1)
    )
    wide = machine_of(device).lanes >= WIDE_LANES
    large = 4 * window.channels * window.features >= (1 if wide else 4) * device.cpu.l2_bytes
    return alike and (op == "conv2d_dw" or large)


def choose_strided(
    fused: Fused, window: ConvWindow, device: Device, options: KernelOptions
) -> Choice:
    """Choose how to compute the product; an input gradient's is bare, and its epilogue runs
    later.
    """
    op = fused.anchor.op
    plain = fused.plain or op == "conv2d_dx"
    inner = choose_product(pixel_product(op, window), plain, device, options)
    assert isinstance(inner.spec, ProductSpec)
    spec = StridedSpec(window, inner.spec, align(window.pixels * window.channels, 16))
    return Choice(f"strided {inner.label}", inner.cycles, spec.scratch_bytes, spec)


def strided_kernel(node: Node, spec: StridedSpec, device: Device) -> Kernel:
    """Emit a product and the copy of pixels before or after it."""
    opened = open_fusion(node, device)
    anchor, window, own = opened.anchor, spec.window, f"{SYMBOL}_product"
    backward = anchor.op == "conv2d_dx"
    calls: list[Code]
    if backward:
        calls = [
            f"{own}(w, {', '.join(opened.names)}, scratch, (float *)scratch + {spec.rows});",
            "pe_barrier(w);",
            opened.io,
            f"{SYMBOL}_spread(w, &io, scratch);",
            *opened.end,
        ]
    else:
        pointers = [parameter.name for parameter in opened.parameters]
        passed = ["scratch" if name == opened.names[0] else name for name in pointers]
        calls = [
            f"{SYMBOL}_gather(w, scratch, {opened.names[0]});",
            "pe_barrier(w);",
            f"{own}(w, {', '.join(passed)}, (float *)scratch + {spec.rows});",
        ]
    inner = open_fusion(anchor if backward else node, device, own)
    body, ahead = product_text(inner, spec.product)
    function = define_function(f"static void {own}", inner.parameters, body)
    macros = _macros(window, machine_of(device).lanes, gather=not backward)
    copies = template(macros, opened.store if backward else "", "strided")
    return define_kernel(
        name=f"pe_{spec.product.kind}_{opened.title}_{window}_strided",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=calls,
        prelude=note(describe(anchor.op, window)) + closed(ahead + "\n" + function + copies),
        scratch_bytes=spec.scratch_bytes,
    )


def _macros(window: ConvWindow, lanes: int, *, gather: bool) -> dict[str, object]:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": lanes,
        "PE_GATHER": int(gather),
        "PE_IMAGES": window.images,
        "PE_SOURCE_H": window.size[0],
        "PE_SOURCE_W": window.size[1],
        "PE_SOURCE_C": window.channels,
        "PE_OUT_H": window.output[0],
        "PE_OUT_W": window.output[1],
        "PE_STEP_H": window.stride[0],
        "PE_STEP_W": window.stride[1],
    }
