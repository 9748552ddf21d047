"""Products of two i8 operands by pairs of 16-bit numbers: Arm's DSP extension of microcontrollers.

An instruction computes two products of operands that are pairs along the depth. Weights are packed
that way for four channels at a time, into scratch that is small beside any activation; the source
is read in place. A depthwise convolution multiplies halves of such words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pockengine.backends.c.elementwise.epilogue import Anchored, open_fusion, split_fusion
from pockengine.backends.c.family import plain_choice
from pockengine.backends.c.products.gemm import template
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, note
from pockengine.backends.native.numbers import whole
from pockengine.backends.native.text import Text, defines, joined
from pockengine.backends.window import (
    Axis,
    ConvWindow,
    Grid,
    backward_grids,
    describe,
    forward_grid,
)
from pockengine.compiler.ir import DType, Node
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device

DSP = "dsp"
"""The instruction set with 16-bit pairs."""

Macros = dict[str, object]


@dataclass(frozen=True)
class PairsSpec:
    """A convolution, which of its products, and the scratch words per thread."""

    window: ConvWindow
    op: str
    words: int


def choose_pairs(node: Node, op: str, window: ConvWindow, device: Device) -> Choice | None:
    """Choose pairs if the device has them and the kernels support the product."""
    anchor = split_fusion(node).anchor
    integers = all(operand.dtype is DType.I8 for operand in anchor.operands)
    if device.cpu.isa != DSP or not integers or anchor.attrs["zeros"][1]:
        return None
    words = _words(op, window)
    if not words:
        return None
    size = 4 * words * device.cpu.cores
    return plain_choice(
        node, device, "pairs", scratch_bytes=size, spec=PairsSpec(window, op, words)
    )


def _words(op: str, window: ConvWindow) -> int:
    """Return the scratch words per thread; 0 if there is no kernel."""
    if op == "conv2d_dw":
        return 0
    if window.is_depthwise:
        return 2 * window.taps
    if window.groups > 1 or (op == "conv2d_dx" and not window.is_matmul):
        return 0
    line = window.kernel[1] * (window.features if op == "conv2d_dx" else window.channels)
    return window.kernel[0] * -(-line // 4) * 8 + -(-window.kernel[0] * line // 4)


def pairs_kernel(node: Node, spec: PairsSpec, device: Device) -> Kernel:
    """Emit a product, or a fusion around one."""
    opened, window = open_fusion(node, device), spec.window
    write = _depthwise_text if window.is_depthwise else _product_text
    prelude, runs = write(opened, spec)
    arguments = f"(w, &io, {', '.join(opened.names)}, scratch);"
    return define_kernel(
        name=f"pe_pairs_{opened.title}",
        shape=str(window),
        isa=device.cpu.isa,
        parameters=opened.parameters,
        body=[opened.io, *(f"{SYMBOL}_{run}{arguments}" for run in runs), *opened.end],
        prelude=note(describe(spec.op, window)) + prelude,
        scratch_bytes=4 * spec.words * device.cpu.cores,
    )


def _common(opened: Anchored, spec: PairsSpec) -> Macros:
    return {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_VL": 4,
        "PE_A_ZERO": whole(f"({opened.anchor.attrs['zeros'][0]})"),
        "PE_THREAD_WORDS": whole(spec.words),
    }


def _product_text(opened: Anchored, spec: PairsSpec) -> tuple[Text, Sequence[str]]:
    macros = _common(opened, spec) | product_macros(spec.window, spec.op)
    return template(macros, opened.store, "pairs_conv"), ["run"]


def product_macros(window: ConvWindow, op: str) -> Macros:
    """Return the sizes of a convolution, or of a product with a transposed matrix."""
    transposed = op == "conv2d_dx"
    depth, columns = window.channels, window.features
    if transposed:
        depth, columns = columns, depth
    begin, end = _inner(forward_grid(window).columns, window.size[1], window.stride[1])
    return {
        **_sizes(window.images, window.size, window.output),
        "PE_CHANNELS": whole(depth),
        "PE_N": whole(columns),
        "PE_TAIL": columns % 4,
        "PE_REST": (window.kernel[1] * depth - 1) % 4 + 1,
        **_pairs("PE_TAPS", window.kernel),
        **_pairs("PE_STEP", window.stride),
        **_pairs("PE_GAP", window.dilation),
        "PE_TOP": window.before[0],
        "PE_LEFT": window.before[1],
        "PE_INNER_BEGIN": whole(begin),
        "PE_INNER_END": whole(end),
        "PE_TRANSPOSED": int(transposed),
    }


def _depthwise_text(opened: Anchored, spec: PairsSpec) -> tuple[Text, Sequence[str]]:
    return grids_text(
        opened, spec.window, spec.op, common=_common(opened, spec), name="pairs_depthwise"
    )


def grids_text(
    opened: Anchored, window: ConvWindow, op: str, common: Macros, name: str
) -> tuple[Text, Sequence[str]]:
    """Include a template for each grid, including result pixels without taps.

    Returns the functions to call, without the kernel's symbol.
    """
    backward = op == "conv2d_dx"
    source, result = window.size, window.output
    if backward:
        source, result = result, source
    grids = backward_grids(window) if backward else (forward_grid(window),)
    common = common | {
        **_sizes(window.images, source, result),
        "PE_CHANNELS": whole(window.channels),
        "PE_TAIL": window.channels % 4,
        "PE_KERNEL_W": window.kernel[1],
    }
    step, out_step = ((1, 1), window.stride) if backward else (window.stride, (1, 1))
    parts = [*defines(common.items()), opened.store]
    names = []
    for index, grid in enumerate(grids):
        symbol = f"{SYMBOL}_{index}_"
        macros = {"PE_GRID(name)": f"PE_JOIN({symbol}, name)"} | _grid_macros(
            grid, source[1], step, out_step
        )
        parts += [*defines(macros.items()), f'#include "kernels/{name}.inc.h"']
        names.append(f"{index}_run")
    return joined("\n", [*parts, '#include "kernels/integer_end.inc.h"']), names


def _grid_macros(
    grid: Grid, width: int, step: tuple[int, int], out_step: tuple[int, int]
) -> Macros:
    macros: Macros = {}
    for letter, axis, by, out in zip("HW", (grid.rows, grid.columns), step, out_step, strict=True):
        taps = axis.kernel or (0,)
        macros |= {
            f"PE_POSITIONS_{letter}": whole(axis.positions),
            f"PE_TAPS_{letter}": len(axis.kernel),
            f"PE_START_{letter}": f"({axis.start})",
            f"PE_GAP_{letter}": f"({axis.gap})",
            f"PE_STEP_{letter}": by,
            f"PE_KERNEL_FIRST_{letter}": taps[0],
            f"PE_KERNEL_STEP_{letter}": f"({taps[1] - taps[0] if len(taps) > 1 else 0})",
            f"PE_OUT_FIRST_{letter}": axis.out,
            f"PE_OUT_STEP_{letter}": out,
        }
    begin, end = _inner(grid.columns, width, step[1])
    return macros | {"PE_INNER_BEGIN": whole(begin), "PE_INNER_END": whole(end)}


def _inner(axis: Axis, width: int, step: int) -> tuple[int, int]:
    """Return the first position with all taps in the source, and the one after the last."""
    begin = max(0, -(axis.start // step))
    end = (width - 1 - axis.last_tap) // step + 1
    return begin, max(begin, min(end, axis.positions))


def _sizes(images: int, source: tuple[int, int], result: tuple[int, int]) -> Macros:
    """Return the images, and the sizes of both."""
    macros = {"PE_IMAGES": images, **_pairs("PE_SOURCE", source), **_pairs("PE_OUT", result)}
    return {name: whole(size) for name, size in macros.items()}


def _pairs(name: str, sizes: tuple[int, int]) -> Macros:
    return {f"{name}_H": sizes[0], f"{name}_W": sizes[1]}
