"""Convolutions, their gradients, and mean pooling: channels-first, as ONNX has them.

MaxPool has no form here: ONNX Runtime's passes over a NaN that ours finds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pockengine.backends.onnx.forms.form import Form
from pockengine.backends.onnx.forms.movement import BEFORE_FIRST, sliced
from pockengine.backends.onnx.forms.steps import step_of, stepped
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.factors import floats
from pockengine.backends.runtimes.layout import IMAGES_FIRST, WEIGHT_FIRST, Layout, laid_out
from pockengine.compiler.ir import Node, Value

Attrs = Mapping[str, Any]

TURNED: Layout = (2, 3, 0, 1)
"""A window whose convolution of dy gives channels of x."""

CHANNELS_LAST: Layout = (0, 1, 2, 3)

CHANNELS = 32
"""From so many on depthwise weight gradients are quicker with channels last, two transposes more:
measured, 1.1 to 4.7 times, and 0.7 times with 16."""


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
    x, weight = floats(node, "onnx")
    geometry = _geometry(node.attrs, weight.shape[:2])
    name = w.node("Conv", w.read(x, IMAGES_FIRST), w.read(weight, WEIGHT_FIRST), **geometry)
    w.bind(node.result, name, IMAGES_FIRST)


def _conv2d_dx(w: EntryWriter, node: Node) -> None:
    """Convolve dy by the window turned around where that is fast, else by the transposed operator.

    It is for single pixels and for single channels; larger windows take longer to turn.
    """
    pads = _turned_pads(node)
    if pads is None:
        _transposed_convolution(w, node)
        return
    (dy, weight), attrs = floats(node, "onnx"), node.attrs
    if weight.shape[:2] == (1, 1):
        window = w.read(weight, TURNED if attrs["groups"] == 1 else WEIGHT_FIRST)
    else:
        around = {axis: (-1, BEFORE_FIRST, -1) for axis in (2, 3)}
        window = sliced(w, w.read(weight, WEIGHT_FIRST), around)
    geometry = _geometry(attrs, weight.shape[:2]) | {"pads": pads}
    name = w.node("Conv", w.read(dy, IMAGES_FIRST), window, **geometry)
    w.bind(node.result, name, IMAGES_FIRST)


def _turned_pads(node: Node) -> list[int] | None:
    """Padding of dy where its convolution has stride 1, and 1x1 windows or one channel each.

    None for other convolutions, and where dy would have to be cut.
    """
    (_, weight), attrs = node.operands, node.attrs
    alone = weight.shape[2] == 1 and attrs["groups"] == weight.shape[3]
    plain = attrs["groups"] == 1 and weight.shape[:2] == (1, 1)
    reach = [(k - 1) * d for k, d in zip(weight.shape[:2], attrs["dilation"], strict=True)]
    pads = [reach[place % 2] - pad for place, pad in enumerate(_pads(attrs))]
    fast = (alone or plain) and tuple(attrs["stride"]) == (1, 1)
    return pads if fast and min(pads) >= 0 else None


def _transposed_convolution(w: EntryWriter, node: Node) -> None:
    """Convolve dy transposed: its operator reads the weight as the convolution does.

    `output_padding` are the rows and columns that no window of the convolution reached.
    """
    (dy, weight), attrs = floats(node, "onnx"), node.attrs
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
    """What each element of a window sees of x: slices (N, C, OH, OW) of the padded image.

    With `layout` CHANNELS_LAST slices (N, OH, OW, C).
    """

    def __init__(
        self, w: EntryWriter, x: Value, dy: Value, attrs: Attrs, layout: Layout = IMAGES_FIRST
    ) -> None:
        self.w, self.attrs, self.output = w, attrs, dy.shape[1:3]
        top, left, bottom, right = _pads(attrs)
        self.image, self.rows = w.read(x, layout), layout.index(1)
        if any((top, left, bottom, right)):
            before, after = (0, top, left, 0), (0, bottom, right, 0)
            sizes = [side[axis] for side in (before, after) for axis in layout]
            self.image = w.node("Pad", self.image, w.numbers(sizes))
        self.padded = (x.shape[1] + top + bottom, x.shape[2] + left + right)

    def __iter__(self) -> Iterator[str]:
        """Cut columns once for all rows: a slice of columns copies single elements."""
        high, wide = self.attrs["weight_shape"][:2]
        columns = [self._cut(self.image, 1, kw) for kw in range(wide)]
        for kh in range(high):
            for column in columns:
                yield self._cut(column, 0, kh)

    def _cut(self, image: str, axis: int, place: int) -> str:
        span = self._span(axis, place)
        whole = span == (0, self.padded[axis], 1)
        return image if whole else sliced(self.w, image, {self.rows + axis: span})

    def _span(self, axis: int, place: int) -> tuple[int, int, int]:
        start, step = place * self.attrs["dilation"][axis], self.attrs["stride"][axis]
        return start, start + (self.output[axis] - 1) * step + 1, step


def _conv2d_dw(w: EntryWriter, node: Node) -> None:
    """Gradient of the weight: by taps for a depthwise convolution, else by one product.

    A convolution with dy as its window is what it is by its meaning, but runtimes have no fast one
    with a window that large.
    """
    (x, _), shape = floats(node, "onnx"), node.result.shape
    depthwise = node.attrs["groups"] == x.shape[3] == shape[3]
    if depthwise and shape[:2] != (1, 1):
        _depthwise_dw(w, node)
    elif _is_one_product(node):
        _product_dw(w, node)
    else:
        w.bind(node.result, _summed_products(w, node), WEIGHT_FIRST)


def _depthwise_dw(w: EntryWriter, node: Node) -> None:
    """Each tap's sum over images and pixels of x dy.

    Where there are channels enough these lie last: slices copy whole pixels, and sums add rows.
    """
    (x, dy), shape = node.operands, node.result.shape
    last = x.shape[3] >= CHANNELS
    layout, kept = (CHANNELS_LAST, 3) if last else (IMAGES_FIRST, 1)
    name, axes = w.read(dy, layout), w.numbers([axis for axis in range(4) if axis != kept])
    sums = [
        w.node("ReduceSum", w.node("Mul", tap, name), axes, keepdims=1)
        for tap in _Taps(w, x, dy, node.attrs, layout)
    ]
    if last:
        w.bind(node.result, w.reshape(w.node("Concat", *sums, axis=0), shape))
        return
    columns = w.node("Concat", *sums, axis=2)
    w.bind(node.result, w.reshape(columns, laid_out(shape, WEIGHT_FIRST)), WEIGHT_FIRST)


def _is_one_product(node: Node) -> bool:
    """Whether a product over all images costs less than one of each, which have to be summed.

    It needs x and dy channels-last.
    """
    (_, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    depth, pixels = high * wide * inner, dy.shape[1] * dy.shape[2]
    less = 2 * depth * outer > pixels * (depth + outer)
    return node.attrs["groups"] == 1 and dy.shape[0] > 1 and less


def _product_dw(w: EntryWriter, node: Node) -> None:
    """Product of dy and the taps over all pixels; a step of the weight where that is all of it."""
    (_, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    rows = w.reshape(w.read(dy), (dy.type.size // outer, outer))
    pair, shape = (rows, _pixel_rows(w, node)), laid_out(node.result.shape, WEIGHT_FIRST)
    step = step_of(w, node.result)
    if step is not None and (high, wide) == (1, 1) and dy.type.size < node.result.type.size:
        content = w.reshape(w.read(step.param, WEIGHT_FIRST), (outer, inner))
        total = stepped(w, step, pair, (1, 0), content)
        w.bind(step.result, w.reshape(total, shape), WEIGHT_FIRST)
        return
    total = w.reshape(w.node("Gemm", *pair, transA=1), (outer, high, wide, inner))
    w.bind(node.result, w.transpose(total, (0, 3, 1, 2)), WEIGHT_FIRST)


def _pixel_rows(w: EntryWriter, node: Node) -> str:
    """What each pixel of dy sees of x, as rows (N pixels, taps and I)."""
    (x, dy), (high, wide, inner, _) = node.operands, node.result.shape
    shape = (dy.type.size // dy.shape[3], high * wide * inner)
    if x.shape[:3] == dy.shape[:3] and (high, wide) == (1, 1):
        return w.reshape(w.read(x), shape)
    part = (dy.shape[0], inner, dy.shape[1] * dy.shape[2])
    seen = [w.reshape(tap, part) for tap in _Taps(w, x, dy, node.attrs)]
    columns = w.node("Concat", *seen, axis=1) if len(seen) > 1 else seen[0]
    return w.reshape(w.transpose(columns, (0, 2, 1)), shape)


def _summed_products(w: EntryWriter, node: Node) -> str:
    """Product of dy (N, G, O, pixels) and the taps (N, G, taps and I, pixels), summed over N."""
    (x, dy), (high, wide, inner, outer) = node.operands, node.result.shape
    groups, batch, taps = node.attrs["groups"], dy.shape[0], high * wide
    pixels = dy.shape[1] * dy.shape[2]
    part = (batch, groups, inner, pixels)
    seen = [w.reshape(tap, part) for tap in _Taps(w, x, dy, node.attrs)]
    columns = w.node("Concat", *seen, axis=2) if taps > 1 else seen[0]
    rows = w.reshape(w.read(dy, IMAGES_FIRST), (batch, groups, outer // groups, pixels))
    products = w.node("MatMul", rows, w.transpose(columns, (0, 1, 3, 2)))
    if batch > 1:
        products = w.node("ReduceSum", products, w.numbers([0]), keepdims=0)
    return w.transpose(w.reshape(products, (outer, high, wide, inner)), (0, 3, 1, 2))


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
