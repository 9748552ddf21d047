"""Convolutions: depthwise ones with one item per element, others as products."""

from pockengine.backends.gpu.kernel import SYMBOL, GpuKernel, Stage, define_kernel, over
from pockengine.backends.gpu.kernels.fused import FusedOperands, end, open_node
from pockengine.backends.gpu.kernels.product import (
    check_f32,
    gradient_place,
    image_place,
    product_kernel,
)
from pockengine.backends.gpu.kernels.reduction import Tree, tree_stage
from pockengine.backends.gpu.kernels.tiling import GpuMachine
from pockengine.backends.picking import Picker
from pockengine.backends.window import ConvWindow, window_of
from pockengine.compiler.ir import Node


def convolution_kernel(node: Node, machine: GpuMachine, pick: Picker) -> GpuKernel:
    """Emit a convolution or one of its gradients, with its epilogue."""
    opened = open_node(node)
    assert opened.anchor is not None
    window = window_of(opened.anchor)
    if not window.is_depthwise:
        return product_kernel(node, machine, pick)
    check_f32(node, opened.anchor)
    stage = _dw if opened.anchor.op == "conv2d_dw" else _image
    return define_kernel(f"depthwise_{opened.title}", opened.parameters, [stage(opened, window)])


def _image(opened: FusedOperands, window: ConvWindow) -> Stage:
    """Forward, or the input gradient: a loop over the taps of each element."""
    assert opened.anchor is not None
    backward = opened.anchor.op == "conv2d_dx"
    image, weight = opened.operands
    place = gradient_place if backward else image_place
    channels = window.channels
    body = [
        f"const int c = i % {channels};",
        "float sum = 0.0f;",
        f"for (int tap = 0; tap < {window.taps}; tap++) {{",
        f"    const int at = {SYMBOL}_at(i / {channels}, tap, c);",
        f"    sum += at < 0 ? 0.0f : {image}[at] * {weight}[tap * {channels} + c];",
        "}",
        *end(opened, "i", sum="sum"),
    ]
    helper = _at(place(window, "pixel", *_taps(window), "c"))
    return over(opened.anchor.result.type.size, body, helper)


def _dw(opened: FusedOperands, window: ConvWindow) -> Stage:
    """Each tap of each channel is a sum over all pixels."""
    x, dy = opened.operands
    channels = window.channels
    elements = [
        f"const int c = r % {channels};",
        f"const int at = {SYMBOL}_at(q, r / {channels}, c);",
        f"const float e0 = at < 0 ? 0.0f : {x}[at] * {dy}[q * {channels} + c];",
        "const float e1 = e0;",
    ]
    tree = Tree(window.taps * channels, window.pixels, across=True)
    helper = _at(image_place(window, "pixel", *_taps(window), "c"))
    return tree_stage(tree, elements, end(opened, "r", s0="s0"), helpers=helper)


def _taps(window: ConvWindow) -> tuple[str, str]:
    return f"tap / {window.kernel[1]}", f"tap % {window.kernel[1]}"


def _at(body: str) -> str:
    return f"PE_FUNCTION int {SYMBOL}_at(int pixel, int tap, int c) {{\n{body}\n}}"
