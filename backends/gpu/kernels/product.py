"""Matrix products, and convolutions as implicit products: a template, and offset functions.

A convolution is an implicit product: rows are pixels, sums run over taps and channels, and a
function returns the offset in the image, or that it is padding. Nothing is copied.

If the result is small and the sum long, as in a weight gradient, groups split the sum: each
computes a part, and a second launch adds the parts, in order.

With bf16, large products use tensor cores, by a separate template. `tiling.py` chooses.
"""

import math
from dataclasses import dataclass, replace

from pockengine.backends.gpu.kernel import SYMBOL, GpuKernel, Stage, block, define_kernel, over
from pockengine.backends.gpu.kernels.fused import FusedOperands, end, open_node
from pockengine.backends.gpu.kernels.tiling import (
    ITEMS,
    TENSOR_TEMPLATE,
    GpuMachine,
    Tiled,
    Tiling,
    choose_tiles,
)
from pockengine.backends.gpu.places import strided
from pockengine.backends.picking import Picker
from pockengine.backends.space import broadcast_strides
from pockengine.backends.window import ConvWindow, window_of
from pockengine.compiler.ir import F32, Node
from pockengine.errors import CompileError


@dataclass(frozen=True)
class Product:
    """Sizes, and the bodies of three offset functions: of a, of b, of the result.

    A `deep` operand is contiguous along the summed dimension, not across sums.
    """

    rows: int
    columns: int
    depth: int
    batches: int
    a: str
    b: str
    c: str
    a_deep: bool
    b_deep: bool


def product_kernel(node: Node, machine: GpuMachine, pick: Picker) -> GpuKernel:
    """Emit a product or a convolution that is not depthwise, with its epilogue.

    A picker identifies products by op, sizes and operand layout.
    """
    opened = open_node(node)
    anchor = opened.anchor
    assert anchor is not None
    check_f32(node, anchor)
    kinds = {"matmul": matmul_product, "conv2d": _forward, "conv2d_dx": _dx, "conv2d_dw": _dw}
    product = kinds[anchor.op](anchor)
    sizes = product.rows, product.columns, product.depth, product.batches
    tiled = choose_tiles(sizes, machine, pick, _key(anchor, product))
    return tiled_kernel(opened, product, tiled)


def _key(anchor: Node, p: Product) -> str:
    batches = f"{p.batches} of " if p.batches > 1 else ""
    a, b = "" if p.a_deep else "t", "t" if p.b_deep else ""
    sizes = f"{batches}{p.rows}x{p.depth}{a} {p.depth}x{p.columns}{b}"
    if anchor.op == "matmul":
        return f"matmul {sizes}"
    window = window_of(anchor)
    taps, strides = ("x".join(map(str, each)) for each in (window.kernel, window.stride))
    return f"{anchor.op} {taps} by {strides}, {sizes}"


def check_f32(node: Node, anchor: Node) -> None:
    """Raise CompileError for a product of integers, naming its node."""
    for value in anchor.operands:
        if value.dtype is not F32:
            raise CompileError(f"{node}: the GPU backend multiplies f32, not {value.dtype.value}")


def tiled_kernel(opened: FusedOperands, product: Product, tiled: Tiled) -> GpuKernel:
    """Emit a product with one tiling."""
    tiling, share = tiled.tiling, tiled.share
    groups = tiling.groups((product.rows, product.columns, product.batches))
    parts = -(-product.depth // share)
    size = product.batches * product.rows * product.columns
    last = end(opened, "i", sum="sum")
    macros = {
        **_macros(opened, product, tiling),
        "PE_PARTS": parts,
        "PE_SHARE": share,
        "PE_END(sum, i)": f"scratch[part * {size} + i] = sum;" if parts > 1 else block(last),
    }
    helpers = _places(product)
    products = Stage(
        groups * parts,
        ITEMS,
        macros,
        body=(),
        template=tiling.template,
        helpers=helpers,
        resident=tiling.resident,
    )
    stages = [products]
    if parts > 1:
        sums = (
            f"for (int part = 0; part < {parts}; part++) {{ sum += scratch[part * {size} + i]; }}"
        )
        stages.append(over(size, ["float sum = 0.0f;", sums, *last]))
    scratch = 4 * parts * size if parts > 1 else 0
    kernel = define_kernel(opened.title, opened.parameters, stages, scratch)
    return replace(kernel, tensor_cores=tiling.template == TENSOR_TEMPLATE)


def _macros(opened: FusedOperands, product: Product, tiling: Tiling) -> dict[str, int | str]:
    """Return the template's macros that do not depend on how a sum is shared."""
    a, b = opened.operands
    return {
        "PE_M": product.rows,
        "PE_N": product.columns,
        "PE_K": product.depth,
        "PE_BATCHES": product.batches,
        "PE_MR": tiling.mr,
        "PE_NR": tiling.nr,
        "PE_A": a,
        "PE_B": b,
        "PE_A_AT": f"{SYMBOL}_a",
        "PE_B_AT": f"{SYMBOL}_b",
        "PE_C_AT": f"{SYMBOL}_c",
        "PE_A_DEEP": int(product.a_deep),
        "PE_B_DEEP": int(product.b_deep),
    }


def _places(product: Product) -> str:
    """Return the offset functions."""
    return "\n".join(
        f"PE_FUNCTION int {SYMBOL}_{name}(int batch, int {first}, int {second}) {{\n"
        f"    (void)batch;\n{body}\n}}"
        for name, first, second, body in (
            ("a", "row", "k", product.a),
            ("b", "k", "column", product.b),
            ("c", "row", "column", product.c),
        )
    )


def matmul_product(node: Node) -> Product:
    """Return a matrix product: batched, or over all rows if B is a single matrix."""
    a, b, y = node.operands[0].shape, node.operands[1].shape, node.result.shape
    ta, tb = node.attrs["transpose_a"], node.attrs["transpose_b"]
    (rows, columns), depth = y[-2:], a[-2] if ta else a[-1]
    batch = y[:-2]
    if not ta and math.prod(b[:-2]) == 1 and math.prod(a[:-2]) == math.prod(batch):
        rows, batch = rows * math.prod(batch), ()  # a's batches are rows of one product
        a = (rows, depth)
    first = _batch(a[:-2], batch, depth * rows)
    second = _batch(b[:-2], batch, depth * columns)
    at_a = f"k * {rows} + row" if ta else f"row * {depth} + k"
    at_b = f"column * {depth} + k" if tb else f"k * {columns} + column"
    return Product(
        rows,
        columns,
        depth,
        batches=math.prod(batch),
        a=f"    return {first} + {at_a};",
        b=f"    return {second} + {at_b};",
        c=f"    return (batch * {rows} + row) * {columns} + column;",
        a_deep=not ta,
        b_deep=tb,
    )


def _batch(own: tuple[int, ...], batch: tuple[int, ...], size: int) -> str:
    """Return the offset of a batch's matrix in a broadcast operand."""
    if math.prod(own) == 1:
        return "0"
    strides = tuple(stride * size for stride in broadcast_strides(own, batch))
    return strided("batch", batch, strides)


def image_place(window: ConvWindow, pixel: str, tap_row: str, tap_column: str, channel: str) -> str:
    """Return statements for the offset in x that an output pixel's tap reads, or -1."""
    (height, width), (rows, columns) = window.size, window.output
    (top, left), (sh, sw), (dh, dw) = window.before, window.stride, window.dilation
    return (
        f"    const int h = {pixel} / {columns} % {rows} * {sh} - {top} + ({tap_row}) * {dh};\n"
        f"    const int w = {pixel} % {columns} * {sw} - {left} + ({tap_column}) * {dw};\n"
        f"    const int image = {pixel} / {rows * columns};\n"
        f"    return h < 0 || h >= {height} || w < 0 || w >= {width}\n"
        f"               ? -1\n"
        f"               : ((image * {height} + h) * {width} + w) * {window.channels} + {channel};"
    )


def gradient_place(
    window: ConvWindow, pixel: str, tap_row: str, tap_column: str, channel: str
) -> str:
    """Return statements for the offset in dy that read an image's pixel by a tap, or -1."""
    (height, width), (rows, columns) = window.size, window.output
    (top, left), (sh, sw), (dh, dw) = window.before, window.stride, window.dilation
    return (
        f"    const int h = {pixel} / {width} % {height} + {top} - ({tap_row}) * {dh};\n"
        f"    const int w = {pixel} % {width} + {left} - ({tap_column}) * {dw};\n"
        f"    const int image = {pixel} / {height * width};\n"
        f"    return h < 0 || w < 0 || h % {sh} || w % {sw} || h / {sh} >= {rows} ||\n"
        f"                   w / {sw} >= {columns}\n"
        f"               ? -1\n"
        f"               : ((image * {rows} + h / {sh}) * {columns} + w / {sw}) * "
        f"{window.features} + {channel};"
    )


def _forward(node: Node) -> Product:
    w = window_of(node)
    own, features = w.group_channels, w.group_features
    taps = f"k / {w.kernel[1] * own}", f"k / {own} % {w.kernel[1]}"
    return Product(
        w.pixels,
        features,
        w.taps * own,
        batches=w.groups,
        a=image_place(w, "row", *taps, f"batch * {own} + k % {own}"),
        b=f"    return k * {w.features} + batch * {features} + column;",
        c=f"    return row * {w.features} + batch * {features} + column;",
        a_deep=True,
        b_deep=False,
    )


def _dx(node: Node) -> Product:
    w = window_of(node)
    own, features = w.group_channels, w.group_features
    taps = f"k / {w.kernel[1] * features}", f"k / {features} % {w.kernel[1]}"
    place = f"(k / {features} * {own} + column) * {w.features}"
    return Product(
        w.images * math.prod(w.size),
        own,
        w.taps * features,
        batches=w.groups,
        a=gradient_place(w, "row", *taps, f"batch * {features} + k % {features}"),
        b=f"    return {place} + batch * {features} + k % {features};",
        c=f"    return row * {w.channels} + batch * {own} + column;",
        a_deep=True,
        b_deep=True,
    )


def _dw(node: Node) -> Product:
    w = window_of(node)
    own, features = w.group_channels, w.group_features
    taps = f"row / {w.kernel[1] * own}", f"row / {own} % {w.kernel[1]}"
    return Product(
        w.taps * own,
        features,
        w.pixels,
        batches=w.groups,
        a=image_place(w, "k", *taps, f"batch * {own} + row % {own}"),
        b=f"    return k * {w.features} + batch * {features} + column;",
        c=f"    return row * {w.features} + batch * {features} + column;",
        a_deep=False,
        b_deep=False,
    )
