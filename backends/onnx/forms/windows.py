"""Convolutions, their gradients, and mean pooling: channels-first, as in ONNX.

MaxPool has no form: ONNX Runtime's ignores NaN, ours propagates it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pockengine.backends.onnx.forms.depthwise import convolved, depthwise_dw, goes_by_taps
from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.movement import BEFORE_FIRST, sliced
from pockengine.backends.onnx.forms.steps import step_of, stepped
from pockengine.backends.onnx.forms.taps import ImageWindows, Taps, windows_of
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.factors import floats
from pockengine.backends.runtimes.layout import IMAGES_FIRST, WEIGHT_FIRST, Layout, laid_out
from pockengine.compiler.ir import Node, Value

TURNED: Layout = (2, 3, 0, 1)
"""Layout of a window whose convolution with dy gives channels of x."""


def geometry(windows: ImageWindows, groups: int) -> dict[str, Any]:
    """Return the window attributes of Conv and ConvTranspose."""
    return {
        "kernel_shape": list(windows.size),
        "strides": list(windows.stride),
        "dilations": list(windows.dilation),
        "pads": list(windows.pads),
        "group": groups,
    }


def _conv2d(w: EntryWriter, node: Node) -> None:
    (x, weight), groups = floats(node, "onnx"), node.attrs["groups"]
    windows = windows_of(node.attrs, weight.shape)
    if _is_depthwise(weight, groups) and goes_by_taps(w, weight, node.result):
        name = convolved(w, x, _tap_rows(w, weight), y=node.result, windows=windows)
    else:
        window = w.read(weight, WEIGHT_FIRST)
        name = w.node("Conv", w.read(x, IMAGES_FIRST), window, **geometry(windows, groups))
    w.bind(node.result, name, IMAGES_FIRST)


def _is_depthwise(weight: Value, groups: int) -> bool:
    """Whether each channel has its own window, of more than one pixel."""
    return weight.shape[:2] != (1, 1) and weight.shape[2:] == (1, groups)


def _tap_rows(w: EntryWriter, weight: Value) -> str:
    """Return a depthwise weight as [taps, 1, C]."""
    return w.reshape(w.read(weight), (-1, 1, weight.shape[3]))


def _conv2d_dx(w: EntryWriter, node: Node) -> None:
    """Convolve dy with the flipped window if that is fast, else use ConvTranspose.

    It is fast for single pixels and single channels; larger windows take longer to flip.
    """
    (dy, weight), groups = floats(node, "onnx"), node.attrs["groups"]
    windows = _turned(node)
    if windows is None:
        _transposed_convolution(w, node)
        return
    if _is_depthwise(weight, groups) and goes_by_taps(w, weight, node.result):
        window = sliced(w, _tap_rows(w, weight), {0: (-1, BEFORE_FIRST, -1)})
        w.bind(node.result, convolved(w, dy, window, y=node.result, windows=windows), IMAGES_FIRST)
        return
    if windows.size == (1, 1):
        window = w.read(weight, TURNED if groups == 1 else WEIGHT_FIRST)
    else:
        around = {axis: (-1, BEFORE_FIRST, -1) for axis in (2, 3)}
        window = sliced(w, w.read(weight, WEIGHT_FIRST), around)
    name = w.node("Conv", w.read(dy, IMAGES_FIRST), window, **geometry(windows, groups))
    w.bind(node.result, name, IMAGES_FIRST)


def _turned(node: Node) -> ImageWindows | None:
    """Windows on dy for stride 1, and 1x1 windows or one channel each.

    None for other convolutions, and if dy would need cropping.
    """
    (_, weight), attrs = node.operands, node.attrs
    windows = windows_of(attrs, weight.shape)
    alone = weight.shape[2] == 1 and attrs["groups"] == weight.shape[3]
    plain = attrs["groups"] == 1 and windows.size == (1, 1)
    reach = [(k - 1) * d for k, d in zip(windows.size, windows.dilation, strict=True)]
    pads = tuple(reach[place % 2] - pad for place, pad in enumerate(windows.pads))
    fast = (alone or plain) and windows.stride == (1, 1)
    return replace(windows, pads=pads) if fast and min(pads) >= 0 else None


def _transposed_convolution(w: EntryWriter, node: Node) -> None:
    """ConvTranspose of dy: the operator reads the weight in the convolution's layout.

    `output_padding` are the rows and columns that no window of the convolution reached.
    """
    (dy, weight), attrs = floats(node, "onnx"), node.attrs
    output_padding = []
    sizes = zip(attrs["input_shape"][1:3], dy.shape[1:3], weight.shape[:2], strict=True)
    top, bottom, left, right = attrs["padding"]
    for axis, (size, steps, k) in enumerate(sizes):
        padded = size + (top + bottom, left + right)[axis]
        reach = (k - 1) * attrs["dilation"][axis] + 1
        output_padding.append(padded - (steps - 1) * attrs["stride"][axis] - reach)
    name = w.node(
        "ConvTranspose",
        w.read(dy, IMAGES_FIRST),
        w.read(weight, WEIGHT_FIRST),
        output_padding=output_padding,
        **geometry(windows_of(attrs, weight.shape), attrs["groups"]),
    )
    w.bind(node.result, name, IMAGES_FIRST)


def _conv2d_dw(w: EntryWriter, node: Node) -> None:
    """Gradient of the weight: by taps for a depthwise convolution, else by one product.

    It is equivalent to a convolution with dy as the window, but runtimes are slow for windows that
    large.
    """
    (x, _), shape = floats(node, "onnx"), node.result.shape
    if shape[:2] != (1, 1) and node.attrs["groups"] == x.shape[3] == shape[3]:
        depthwise_dw(w, node)
    elif _is_one_product(node):
        _product_dw(w, node)
    else:
        w.bind(node.result, _summed_products(w, node), WEIGHT_FIRST)


def _is_one_product(node: Node) -> bool:
    """Whether one product over all images costs less than one per image and their sum.

    It needs x and dy channels-last.
    """
    (_, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    depth, pixels = high * wide * inner, dy.shape[1] * dy.shape[2]
    less = 2 * depth * outer > pixels * (depth + outer)
    return node.attrs["groups"] == 1 and dy.shape[0] > 1 and less


def _product_dw(w: EntryWriter, node: Node) -> None:
    """Product of dy and the taps over all pixels; a step of the weight, if that is its only use."""
    (_, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    rows = w.reshape(w.read(dy), (dy.type.size // outer, outer))
    pair, shape = (rows, _pixel_rows(w, node)), laid_out(node.result.shape, WEIGHT_FIRST)
    step = step_of(w, node.result)
    if step is not None and (high, wide) == (1, 1):
        content = w.reshape(w.read(step.param, WEIGHT_FIRST), (outer, inner))
        total = stepped(w, step, pair, turned=(1, 0), content=content)
        w.bind(step.result, w.reshape(total, shape), WEIGHT_FIRST)
        return
    total = w.node("Gemm", *pair, transA=1)
    w.bind(node.result, _window(w, total, node.result.shape), WEIGHT_FIRST)


def _pixel_rows(w: EntryWriter, node: Node) -> str:
    """The taps of each pixel of dy in x, as rows (N pixels, taps and I)."""
    (x, dy), (high, wide, inner, _) = node.operands, node.result.shape
    shape = (dy.type.size // dy.shape[3], high * wide * inner)
    if x.shape[:3] == dy.shape[:3] and (high, wide) == (1, 1):
        return w.reshape(w.read(x), shape)
    part = (dy.shape[0], inner, dy.shape[1] * dy.shape[2])
    seen = [
        w.reshape(tap, part) for tap in Taps(w, x, dy, windows_of(node.attrs, node.result.shape))
    ]
    columns = w.node("Concat", *seen, axis=1) if len(seen) > 1 else seen[0]
    return w.reshape(w.transpose(columns, (0, 2, 1)), shape)


def _summed_products(w: EntryWriter, node: Node) -> str:
    """Product of dy (N, G, O, pixels) and the taps (N, G, taps and I, pixels), summed over N."""
    (x, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    groups, batch, taps = node.attrs["groups"], dy.shape[0], high * wide
    pixels = dy.shape[1] * dy.shape[2]
    part = (batch, groups, inner, pixels)
    seen = [
        w.reshape(tap, part) for tap in Taps(w, x, dy, windows_of(node.attrs, node.result.shape))
    ]
    columns = w.node("Concat", *seen, axis=2) if taps > 1 else seen[0]
    rows = w.reshape(w.read(dy, IMAGES_FIRST), (batch, groups, outer // groups, pixels))
    products = w.node("MatMul", rows, w.transpose(columns, (0, 1, 3, 2)))
    if batch > 1:
        products = w.node("ReduceSum", products, w.numbers([0]), keepdims=0)
    return _window(w, products, node.result.shape)


def _window(w: EntryWriter, rows: str, shape: tuple[int, ...]) -> str:
    """Rows of taps, with channels of x last, as a window of this shape in the weight's layout."""
    high, wide, inner, outer = shape
    if (high, wide) == (1, 1):
        return w.reshape(rows, laid_out(shape, WEIGHT_FIRST))
    return w.transpose(w.reshape(rows, (outer, high, wide, inner)), (0, 3, 1, 2))


def _avg_pool2d(w: EntryWriter, node: Node) -> None:
    attrs = node.attrs
    top, bottom, left, right = attrs["padding"]
    name = w.node(
        "AveragePool",
        w.read(node.operands[0], IMAGES_FIRST),
        kernel_shape=list(attrs["kernel"]),
        strides=list(attrs["stride"]),
        pads=[top, left, bottom, right],
        count_include_pad=int(attrs["count_include_pad"]),
    )
    w.bind(node.result, name, IMAGES_FIRST)


FORMS: Mapping[str, Form] = {
    "conv2d": _conv2d,
    "conv2d_dx": _conv2d_dx,
    "conv2d_dw": _conv2d_dw,
    "avg_pool2d": _avg_pool2d,
}
