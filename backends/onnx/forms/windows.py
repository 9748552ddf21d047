"""Convolutions, their gradients, and mean pooling: channels-first, as ONNX has them.

MaxPool has no form here: ONNX Runtime's passes over a NaN that ours finds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.movement import sliced
from pockengine.backends.onnx.forms.products import floats
from pockengine.backends.onnx.layout import IMAGES_FIRST, WEIGHT_FIRST, laid_out
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.compiler.ir import Node, Value

Attrs = Mapping[str, Any]


def _pads(attrs: Attrs) -> list[int]:
    top, bottom, left, right = attrs["padding"]
    return [top, left, bottom, right]


def _geometry(attrs: Attrs, kernel: tuple[int, ...]) -> dict[str, Any]:
    return {
        "kernel_shape": list(kernel),
        "strides": list(attrs["stride"]),
        "dilations": list(attrs["dilation"]),
        "pads": _pads(attrs),
        "group": attrs["groups"],
    }


def _conv2d(w: EntryWriter, node: Node) -> None:
    x, weight = floats(node)
    geometry = _geometry(node.attrs, weight.shape[:2])
    name = w.node("Conv", w.read(x, IMAGES_FIRST), w.read(weight, WEIGHT_FIRST), **geometry)
    w.bind(node.result, name, IMAGES_FIRST)


def _conv2d_dx(w: EntryWriter, node: Node) -> None:
    """Convolve dy transposed: its operator reads the weight as the convolution does.

    `output_padding` are the rows and columns that no window of the convolution reached.
    """
    (dy, weight), attrs = floats(node), node.attrs
    rest = []
    sizes = zip(attrs["input_shape"][1:3], dy.shape[1:3], weight.shape[:2], strict=True)
    top, bottom, left, right = attrs["padding"]
    for axis, (size, steps, k) in enumerate(sizes):
        padded = size + (top + bottom, left + right)[axis]
        reach = (k - 1) * attrs["dilation"][axis] + 1
        rest.append(padded - (steps - 1) * attrs["stride"][axis] - reach)
    name = w.node(
        "ConvTranspose",
        w.read(dy, IMAGES_FIRST),
        w.read(weight, WEIGHT_FIRST),
        output_padding=rest,
        **_geometry(attrs, weight.shape[:2]),
    )
    w.bind(node.result, name, IMAGES_FIRST)


class _Taps:
    """What each element of a window sees of x: slices (N, C, OH, OW) of the padded image."""

    def __init__(self, w: EntryWriter, x: Value, dy: Value, attrs: Attrs) -> None:
        self.w, self.attrs, self.output = w, attrs, dy.shape[1:3]
        top, left, bottom, right = _pads(attrs)
        self.image = w.read(x, IMAGES_FIRST)
        if any((top, left, bottom, right)):
            sizes = w.numbers([0, 0, top, left, 0, 0, bottom, right])
            self.image = w.node("Pad", self.image, sizes)
        self.padded = (x.shape[1] + top + bottom, x.shape[2] + left + right)

    def __iter__(self) -> Iterator[str]:
        high, wide = self.attrs["weight_shape"][:2]
        for kh in range(high):
            for kw in range(wide):
                spans = {2: self._span(0, kh), 3: self._span(1, kw)}
                whole = {2: (0, self.padded[0], 1), 3: (0, self.padded[1], 1)}
                spans = {axis: span for axis, span in spans.items() if span != whole[axis]}
                yield sliced(self.w, self.image, spans)

    def _span(self, axis: int, place: int) -> tuple[int, int, int]:
        start, step = place * self.attrs["dilation"][axis], self.attrs["stride"][axis]
        return start, start + (self.output[axis] - 1) * step + 1, step


def _conv2d_dw(w: EntryWriter, node: Node) -> None:
    """Gradient of the weight: by taps for a depthwise convolution, else by one product.

    A convolution with dy as its window is what it is by its meaning, but runtimes have no fast one
    with a window that large.
    """
    (x, _), shape = floats(node), node.result.shape
    depthwise = node.attrs["groups"] == x.shape[3] == shape[3]
    form = _depthwise_dw if depthwise and shape[:2] != (1, 1) else _product_dw
    w.bind(node.result, form(w, node), WEIGHT_FIRST)


def _depthwise_dw(w: EntryWriter, node: Node) -> str:
    """Each tap's sum over images and pixels of x dy."""
    x, dy = node.operands
    name, axes = w.read(dy, IMAGES_FIRST), w.numbers([0, 2, 3])
    sums = [
        w.node("ReduceSum", w.node("Mul", tap, name), axes, keepdims=1)
        for tap in _Taps(w, x, dy, node.attrs)
    ]
    columns = w.node("Concat", *sums, axis=2)
    return w.reshape(columns, laid_out(node.result.shape, WEIGHT_FIRST))


def _product_dw(w: EntryWriter, node: Node) -> str:
    """Product of dy (N, G, O, pixels) and the taps (N, G, taps and I, pixels), summed over N."""
    (x, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    groups, batch, taps = node.attrs["groups"], dy.shape[0], high * wide
    pixels = dy.shape[1] * dy.shape[2]
    part = (batch, groups, inner, pixels)
    seen = [w.reshape(tap, part) for tap in _Taps(w, x, dy, node.attrs)]
    columns = w.node("Concat", *seen, axis=2) if taps > 1 else seen[0]
    rows = w.reshape(w.read(dy, IMAGES_FIRST), (batch, groups, outer // groups, pixels))
    products = w.node("MatMul", rows, w.transpose(columns, (0, 1, 3, 2)))
    total = w.node("ReduceSum", products, w.numbers([0]), keepdims=0)
    return w.transpose(w.reshape(total, (outer, high, wide, inner)), (0, 3, 1, 2))


def _avg_pool2d(w: EntryWriter, node: Node) -> None:
    attrs = node.attrs
    name = w.node(
        "AveragePool",
        w.read(node.operands[0], IMAGES_FIRST),
        kernel_shape=list(attrs["kernel"]),
        strides=list(attrs["stride"]),
        pads=_pads(attrs),
        count_include_pad=int(attrs["count_include_pad"]),
    )
    w.bind(node.result, name, IMAGES_FIRST)


FORMS: Mapping[str, Form] = {
    "conv2d": _conv2d,
    "conv2d_dx": _conv2d_dx,
    "conv2d_dw": _conv2d_dw,
    "avg_pool2d": _avg_pool2d,
}
