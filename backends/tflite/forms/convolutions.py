"""Convolutions and their gradients: images are channels-last, as ours are.

The runtime has dense and depthwise convolutions; other groups are convolved one by one.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pockengine.backends.runtimes.factors import floats
from pockengine.backends.runtimes.layout import Layout
from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.movement import concat, padded, reversed_axis, sliced
from pockengine.backends.tflite.forms.products import product
from pockengine.backends.tflite.forms.windows import PaddedWindow
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import OUTPUT_FIRST, EntryWriter
from pockengine.compiler.ir import Node

HWIO: Layout = (0, 1, 2, 3)
INPUT_FIRST: Layout = (2, 0, 1, 3)
"""IHWO of an HWIO weight: how a transposed convolution and a depthwise one read it."""
Grouped = Callable[[LiteTensor, LiteTensor], LiteTensor]


def _conv2d(w: EntryWriter, node: Node) -> None:
    x, weight = floats(node, "tflite")
    window = PaddedWindow.of(node.attrs, x.shape[1:3], weight.shape[:2])
    groups, image = node.attrs["groups"], w.read(x)
    if groups == 1:
        result = _convolved(w, image, w.read(weight, OUTPUT_FIRST), window)
    elif groups == x.shape[3]:
        result = _depthwise(w, image, w.read(weight, INPUT_FIRST), window)
    else:
        kernel = w.read(weight, OUTPUT_FIRST)
        result = _by_group(
            w, (image, 3), (kernel, 0), groups=groups, form=lambda a, b: _convolved(w, a, b, window)
        )
    w.bind(node.result, result)


def _convolved(
    w: EntryWriter, x: LiteTensor, kernel: LiteTensor, window: PaddedWindow
) -> LiteTensor:
    """Convolve by a kernel (O, KH, KW, I)."""
    image, attrs = window.prepared(w, x)
    shape = (x.shape[0], *window.output, kernel.shape[0])
    zeros = _no_bias(w, shape[3])
    return w.op("CONV_2D", image, kernel, zeros, shape=shape, **attrs, **window.dilated)


def _depthwise(
    w: EntryWriter, x: LiteTensor, kernel: LiteTensor, window: PaddedWindow
) -> LiteTensor:
    """Depthwise convolution with kernels (1, KH, KW, O)."""
    image, attrs = window.prepared(w, x)
    shape = (x.shape[0], *window.output, kernel.shape[3])
    return w.op(
        "DEPTHWISE_CONV_2D",
        image,
        kernel,
        _no_bias(w, shape[3]),
        shape=shape,
        DepthMultiplier=kernel.shape[3] // x.shape[3],
        **attrs,
        **window.dilated,
    )


def _no_bias(w: EntryWriter, channels: int) -> LiteTensor:
    """A zero bias: XNNPACK requires one."""
    return w.constant(np.zeros(channels, np.float32))


def _by_group(
    w: EntryWriter,
    first: tuple[LiteTensor, int],
    second: tuple[LiteTensor, int],
    groups: int,
    form: Grouped,
    axis: int = 3,
) -> LiteTensor:
    """Compute by groups of channels of two tensors, along an axis of each."""
    results = []
    for group in range(groups):
        parts = []
        for tensor, along in (first, second):
            size = tensor.shape[along] // groups
            parts.append(sliced(w, tensor, {along: (group * size, (group + 1) * size, 1)}))
        results.append(form(*parts))
    return concat(w, results, axis)


def _conv2d_dx(w: EntryWriter, node: Node) -> None:
    (dy, weight), attrs = floats(node, "tflite"), node.attrs
    groups, image = attrs["groups"], attrs["input_shape"]
    window = PaddedWindow.of(attrs, image[1:3], weight.shape[:2])
    kernel, cotangent = w.read(weight, INPUT_FIRST), w.read(dy)
    form = _transposed if window.dilation == (1, 1) else _turned
    if groups == 1:
        result = form(w, cotangent, kernel, window)
    elif groups == image[3] == dy.shape[3]:
        result = _depthwise_dx(w, cotangent, kernel, window)
    else:
        result = _by_group(
            w, (cotangent, 3), (kernel, 3), groups=groups, form=lambda a, b: form(w, a, b, window)
        )
    w.bind(node.result, result)


def _transposed(
    w: EntryWriter, dy: LiteTensor, kernel: LiteTensor, window: PaddedWindow
) -> LiteTensor:
    """The runtime's transposed convolution with (I, KH, KW, O), or a product for one pixel."""
    if window.kernel == window.stride == (1, 1) and not any(window.padding):
        return product(w, dy, w.reshape(kernel, (kernel.shape[0], kernel.shape[3])))
    name, size = (window.named, window.size) if window.named else ("VALID", window.padded)
    shape = (dy.shape[0], *size, kernel.shape[0])
    whole = w.op(
        "TRANSPOSE_CONV",
        w.numbers(shape),
        kernel,
        dy,
        shape=shape,
        kind=dy.kind,
        Padding=name,
        StrideH=window.stride[0],
        StrideW=window.stride[1],
    )
    return _cropped(w, whole, window) if size != window.size else whole


def _cropped(w: EntryWriter, x: LiteTensor, window: PaddedWindow) -> LiteTensor:
    """Crop the padding of an image."""
    (top, _, left, _), (rows, columns) = window.padding, window.size
    return sliced(w, x, {1: (top, top + rows, 1), 2: (left, left + columns, 1)})


def _spread(w: EntryWriter, dy: LiteTensor, window: PaddedWindow) -> LiteTensor:
    """Dilate dy by the stride with zeros, and pad it to the reach of the windows.

    Pixels that no window reached are 0 at the end.
    """
    batch, rows, columns, channels = dy.shape
    (sh, sw), (h, width), reach = window.stride, window.padded, window.reach
    if sw > 1:
        lines = w.reshape(dy, (batch * rows * columns, channels))
        lines = padded(w, lines, (0, 0), (0, (sw - 1) * channels))
        dy = w.reshape(lines, (batch, rows, columns * sw, channels))
    if sh > 1:
        lines = w.reshape(dy, (batch * rows, columns * sw * channels))
        lines = padded(w, lines, (0, 0), (0, (sh - 1) * columns * sw * channels))
        dy = w.reshape(lines, (batch, rows * sh, columns * sw, channels))
    ends = (h - reach[0] + 1, width - reach[1] + 1)  # valid offsets of a window's first pixel
    dy = sliced(w, dy, {1: (0, min(rows * sh, ends[0]), 1), 2: (0, min(columns * sw, ends[1]), 1)})
    missing = (ends[0] - dy.shape[1], ends[1] - dy.shape[2])
    behind = (more + far - 1 for more, far in zip(missing, reach, strict=True))
    return padded(w, dy, (0, reach[0] - 1, reach[1] - 1, 0), (0, *behind, 0))


def _turned(w: EntryWriter, dy: LiteTensor, kernel: LiteTensor, window: PaddedWindow) -> LiteTensor:
    """Convolve dilated dy with the flipped window."""
    return _against(w, dy, kernel, window=window, form=_convolved)


def _depthwise_dx(
    w: EntryWriter, dy: LiteTensor, kernel: LiteTensor, window: PaddedWindow
) -> LiteTensor:
    return _against(w, dy, kernel, window=window, form=_depthwise)


def _against(
    w: EntryWriter,
    dy: LiteTensor,
    kernel: LiteTensor,
    window: PaddedWindow,
    form: Callable[[EntryWriter, LiteTensor, LiteTensor, PaddedWindow], LiteTensor],
) -> LiteTensor:
    outer, (high, wide), inner = kernel.shape[0], window.kernel, kernel.shape[3]
    taps = w.reshape(kernel, (outer, high * wide, inner))
    turned = w.reshape(reversed_axis(w, taps, 1), kernel.shape) if high * wide > 1 else kernel
    image = _spread(w, dy, window)
    walk = PaddedWindow(
        image.shape[1:3], window.kernel, (1, 1), dilation=window.dilation, padding=(0, 0, 0, 0)
    )
    return _cropped(w, form(w, image, turned, walk), window)


def _conv2d_dw(w: EntryWriter, node: Node) -> None:
    """Gradient of the weight: a convolution for depthwise, else one product."""
    (x, dy), shape, attrs = floats(node, "tflite"), node.result.shape, node.attrs
    window = PaddedWindow.of(attrs, x.shape[1:3], shape[:2])
    groups, image, cotangent = attrs["groups"], w.read(x), w.read(dy)
    if groups == x.shape[3] == shape[3]:
        w.bind(node.result, _depthwise_dw(w, image, cotangent, window), HWIO)
    elif groups == 1:
        w.bind(node.result, _product_dw(w, image, cotangent, window), OUTPUT_FIRST)
    else:
        result = _by_group(
            w,
            (image, 3),
            (cotangent, 3),
            groups=groups,
            form=lambda a, b: _product_dw(w, a, b, window),
            axis=0,
        )
        w.bind(node.result, result, OUTPUT_FIRST)


def _depthwise_dw(
    w: EntryWriter, x: LiteTensor, dy: LiteTensor, window: PaddedWindow
) -> LiteTensor:
    """Convolve x with dy as the window, per channel and image, and sum over images."""
    batch, channels = x.shape[0], x.shape[3]
    image, kernel = (_beside(w, tensor) for tensor in (window.pad(w, x), dy))
    size, stride = window.padded, window.dilation
    walk = PaddedWindow(size, window.output, stride, dilation=window.stride, padding=(0, 0, 0, 0))
    sums = _depthwise(w, image, kernel, walk)
    high, wide = window.kernel
    sums = sliced(w, sums, {1: (0, high, 1), 2: (0, wide, 1)})
    shape = (high, wide, 1, channels)
    if batch == 1:
        return w.reshape(sums, shape)
    parts = w.reshape(sums, (high * wide, batch, channels))
    total = w.op("SUM", parts, w.numbers([1]), shape=(high * wide, channels), KeepDims=False)
    return w.reshape(total, shape)


def _beside(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """Move the images of a batch into the channels of one image."""
    batch, rows, columns, channels = x.shape
    if batch == 1:
        return x
    lines = w.transpose(w.reshape(x, (batch, rows * columns, channels)), (1, 0, 2))
    return w.reshape(lines, (1, rows, columns, batch * channels))


def _product_dw(w: EntryWriter, x: LiteTensor, dy: LiteTensor, window: PaddedWindow) -> LiteTensor:
    """Product of dy (O, pixels) and the taps of x (KH KW I, pixels): the weight as OHWI."""
    (batch, _, _, inner), outer, (high, wide) = x.shape, dy.shape[3], window.kernel
    pixels = batch * window.output[0] * window.output[1]
    planes = _planes(w, window.pad(w, x))
    seen = [w.reshape(tap, (inner, pixels)) for tap in window.taps(w, planes, axis=2)]
    rows = w.reshape(_planes(w, dy), (outer, pixels))
    return w.reshape(product(w, rows, concat(w, seen, 0)), (outer, high, wide, inner))


def _planes(w: EntryWriter, x: LiteTensor) -> LiteTensor:
    """One image per channel (C, N, H, W), by a matrix transpose."""
    *pixels, channels = x.shape
    lines = w.reshape(x, (int(np.prod(pixels)), channels))
    return w.reshape(w.transpose(lines, (1, 0)), (channels, *pixels))


FORMS: Mapping[str, Form] = {
    "conv2d": _conv2d,
    "conv2d_dx": _conv2d_dx,
    "conv2d_dw": _conv2d_dw,
}
