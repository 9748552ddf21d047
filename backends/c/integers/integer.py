"""Kernels of products with an i8 operand: matmul, convolutions and their gradients.

Products of two i8 operands are summed in i32; with an f32 operand the integers are converted to
floats. The templates (runtime/kernels/integer*.inc.h) need no scratch, which small machines and
tight memory budgets lack. A matmul is a convolution of one row of pixels with one tap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pockengine.backends.c.convolutions.window_macros import window_macros
from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.integers.bytes_depthwise import (
    DepthwiseSpec,
    depthwise_bytes_kernel,
    depthwise_spec,
)
from pockengine.backends.c.integers.bytes_product import BytesSpec, bytes_kernel, bytes_spec
from pockengine.backends.c.integers.helium import HeliumSpec, choose_helium, helium_kernel
from pockengine.backends.c.integers.pairs import PairsSpec, choose_pairs, pairs_kernel
from pockengine.backends.c.options import DEFAULT, KernelOptions
from pockengine.backends.c.products.gemm import template
from pockengine.backends.c.tile import Tile, machine_of, multiply_cycles, tiles
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, note
from pockengine.backends.native.numbers import of_many_shapes, whole
from pockengine.backends.window import ConvWindow, describe, window_of
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

GRADIENTS = ("conv2d_dx", "conv2d_dw")

MOST_UNROLLED = 128
"""Maximum taps of all phases of a strided input gradient, each of which has code of its own."""


@dataclass(frozen=True)
class IntegerSpec:
    """The convolution of a product, which of its three products, and the tile of sums."""

    window: ConvWindow
    op: str
    tile: Tile


def by_operands(floats: KernelFamily) -> KernelFamily:
    """Return a family of products that uses these kernels for f32, and this module's for i8."""

    def choose(node: Node, device: Device, options: KernelOptions) -> Choice:
        anchor = split_fusion(node).anchor
        if any(operand.dtype is DType.I8 for operand in anchor.operands):
            return choose_integer(node, device, options)
        return floats.choose(node, device, options)

    def emit(node: Node, choice: Choice, device: Device) -> Kernel:
        if isinstance(choice.spec, DepthwiseSpec):
            return depthwise_bytes_kernel(node, choice.spec, device)
        if isinstance(choice.spec, BytesSpec):
            return bytes_kernel(node, choice.spec, device)
        if isinstance(choice.spec, IntegerSpec):
            return integer_kernel(node, choice.spec, device)
        if isinstance(choice.spec, PairsSpec):
            return pairs_kernel(node, choice.spec, device)
        if isinstance(choice.spec, HeliumSpec):
            return helium_kernel(node, choice.spec, device)
        return floats.emit(node, choice, device)

    return KernelFamily(choose, emit)


def choose_integer(node: Node, device: Device, options: KernelOptions = DEFAULT) -> Choice:
    """Choose the kernel and the tile of a product, or of a fusion around one."""
    anchor = split_fusion(node).anchor
    if anchor.op == "matmul":
        op, window = _matrix_window(anchor)
    else:
        op, window = anchor.op, window_of(anchor)
    if op == "conv2d_dx" and anchor.attrs["zeros"][1]:
        raise CompileError(f"{anchor}: a second operand that is read transposed has no zero point")
    packed = _packed(node, op, window, device) if options.packed else None
    if packed is not None:
        return packed
    tile = _tile(op, window, device)
    return plain_choice(node, device, f"integers {tile.label}", spec=IntegerSpec(window, op, tile))


def _packed(node: Node, op: str, window: ConvWindow, device: Device) -> Choice | None:
    """Choose a kernel that packs bytes in scratch in the CPU's order."""
    for choose in (choose_pairs, choose_helium):
        chosen = choose(node, op, window, device)
        if chosen is not None:
            return chosen
    for find in (depthwise_spec, bytes_spec):
        spec = find(split_fusion(node).anchor, op, window, device)
        if spec is not None:
            scratch = spec.scratch_bytes
            return plain_choice(node, device, spec.label, scratch_bytes=scratch, spec=spec)
    return None


def _tile(op: str, window: ConvWindow, device: Device) -> Tile:
    """Return the cheapest tile; for a template without tiles, only its lanes matter."""
    columns = window.group_channels if op == "conv2d_dx" else window.group_features
    rows = window.group_channels if op == "conv2d_dw" else window.output[1]
    if window.is_depthwise:
        columns = window.channels
    machine = replace(machine_of(device), by_lane=False)  # a tile's elements of A are broadcast

    def cycles(tile: Tile) -> tuple[float, str]:
        depth = window.taps * window.group_channels
        return multiply_cycles(machine, tile, rows, columns=columns, depth=depth), tile.label

    cheapest = min(tiles(machine, rows, columns), key=cycles)
    if window.is_depthwise and machine.paired and columns % machine.streamed == 0:
        # More lanes share the search for taps.
        return replace(cheapest, lanes=max(cheapest.lanes, machine.streamed))
    return cheapest


def _matrix_window(node: Node) -> tuple[str, ConvWindow]:
    """View a matmul as a convolution or one of its gradients, of M pixels with one tap."""
    (a, b), attrs = node.operands, node.attrs
    ta, tb = attrs["transpose_a"], attrs["transpose_b"]
    if len(b.shape) != 2 or (ta and (tb or len(a.shape) != 2)):
        raise CompileError(f"{node}: integers are multiplied by one matrix, and one is transposed")
    rows = math.prod(a.shape[:-1])
    op = "conv2d_dw" if ta else "conv2d_dx" if tb else "conv2d"
    inputs, features = b.shape if not ta else (a.shape[1], b.shape[1])
    window = ConvWindow(
        images=1,
        size=(1, rows),
        channels=inputs,
        kernel=(1, 1),
        output=(1, rows),
        features=features,
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
    )
    return op, window


def integer_kernel(node: Node, spec: IntegerSpec, device: Device) -> Kernel:
    """Emit a product, or a fusion around one."""
    opened, window = open_fusion(node, device), spec.window
    depthwise = window.is_depthwise
    backward, gradient = spec.op == "conv2d_dx", spec.op == "conv2d_dw"
    macros = _operand_macros(opened, spec) | window_macros(window, backward)
    if depthwise:
        name = _depthwise_template(spec, device)
        macros |= {} if gradient else {"PE_BACKWARD": int(backward)}
    elif backward:
        name = "integer_dot"
    else:
        name = "integer_dw" if gradient else "integer_conv"
        macros |= {"PE_MR": spec.tile.rows, "PE_NV": spec.tile.vectors}
    if name == "integer_conv":
        macros |= _inner_columns(window)
    tail = of_many_shapes(f"#define PE_TAIL {window.group_features % spec.tile.columns}\n")
    kinds = "_".join(operand.dtype.value for operand in opened.anchor.operands)
    return define_kernel(
        name=f"pe_{kinds}_{opened.title}",
        shape=f"{window}_{spec.tile}",
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, f"{SYMBOL}_run(w, &io, {', '.join(opened.names)});", *opened.end],
        prelude=note(describe(spec.op, window)) + tail + template(macros, opened.store, name),
    )


def _depthwise_template(spec: IntegerSpec, device: Device) -> str:
    """Return the template of a depthwise product; one by phases is unrolled, and so larger."""
    window = spec.window
    if spec.op == "conv2d_dw":
        return "integer_depthwise_dw"
    phases = math.prod(window.stride)
    unrolled = phases > 1 and phases * window.taps <= MOST_UNROLLED and not device.freestanding
    by_phases = unrolled and spec.op == "conv2d_dx"
    return "integer_depthwise_dx" if by_phases else "integer_depthwise"


def _operand_macros(opened: Anchored, spec: IntegerSpec) -> dict[str, object]:
    a, b = opened.anchor.operands
    zeros: Sequence[int] = opened.anchor.attrs["zeros"]
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": spec.tile.lanes,
        "PE_A_BYTES": a.dtype.itemsize,
        "PE_B_BYTES": b.dtype.itemsize,
        "PE_A_ZERO": whole(f"({zeros[0]})"),
        "PE_B_ZERO": f"({zeros[1]})",
    }


def _inner_columns(window: ConvWindow) -> dict[str, object]:
    """Return the result columns whose taps are all in the image."""
    step, left = window.stride[1], window.before[1]
    reach = (window.kernel[1] - 1) * window.dilation[1]
    begin = -(-left // step)
    end = (window.size[1] - 1 - reach + left) // step + 1
    return {
        "PE_INNER_BEGIN": whole(begin),
        "PE_INNER_END": whole(max(begin, min(end, window.output[1]))),
    }
