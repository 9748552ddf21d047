"""1x1 convolutions with a stride, and their gradients: products of the pixels that they meet.

y = x w and dw = xᵀ dy read the pixels of x that are met, gathered into scratch; dx = dy wᵀ is made
in scratch and then spread over the image, where the other pixels get zeros. The product is a kernel
of gemm.py, called by the one that is emitted here.
"""

from pockengine.backends.c.epilogue import Anchored, open_fusion
from pockengine.backends.c.gemm import Product, product_kernel, template
from pockengine.backends.c.kernel import SYMBOL, Kernel, align, define_kernel
from pockengine.backends.c.options import Options
from pockengine.backends.c.tile import machine_of
from pockengine.backends.c.window import Window, describe
from pockengine.devices.schema import Device


def is_strided_product(op: str, window: Window, device: Device) -> bool:
    """Whether a convolution or gradient is a product of some pixels, and best computed as one.

    Weight gradients always are. The others copy more than the direct kernel does, which in turn
    reads the weights once for each few rows of pixels: that is dear where they are large.
    """
    alike = (
        window.kernel == (1, 1)
        and window.padding == (0, 0, 0, 0)
        and window.groups == 1
        and window.stride != (1, 1)
    )
    large = 4 * window.channels * window.features > 4 * device.cpu.l2_bytes
    return alike and (op == "conv2d_dw" or large)


def strided_kernel(
    opened: Anchored, window: Window, product: Product, device: Device, options: Options
) -> Kernel:
    """Emit a convolution or gradient whose product over the pixels that are met is `product`."""
    backward = opened.anchor.op == "conv2d_dx"
    rows = align(window.pixels * window.channels, 16)
    inner = product_kernel(
        open_fusion(opened.anchor, device) if backward else opened, product, device, options
    )
    own = f"{SYMBOL}_product"
    pointers = [parameter.name for parameter in opened.parameters]
    if backward:
        calls = [
            f"{own}(w, {', '.join(opened.names)}, scratch, (float *)scratch + {rows});",
            "pe_barrier(w);",
            opened.io,
            f"{SYMBOL}_spread(w, &io, scratch);",
            *opened.end,
        ]
    else:
        passed = ["scratch" if name == opened.names[0] else name for name in pointers]
        calls = [
            f"{SYMBOL}_gather(w, scratch, {opened.names[0]});",
            "pe_barrier(w);",
            f"{own}(w, {', '.join(passed)}, (float *)scratch + {rows});",
        ]
    macros = _macros(window, machine_of(device).lanes, gather=not backward)
    return define_kernel(
        name=f"pe_{inner.symbol.split('_')[1]}_{opened.title}_{window}_strided",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=calls,
        prelude=describe(opened.anchor.op, window)
        + inner.source.replace(f"void {inner.symbol}(", f"static void {own}(").replace(
            inner.symbol, own
        )
        + template(macros, opened.store if backward else "", "strided"),
        scratch_bytes=4 * rows + inner.scratch_bytes,
    )


def _macros(window: Window, lanes: int, *, gather: bool) -> dict[str, object]:
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
