"""Depthwise convolutions by taps, channels-last: the runtime's own run one product per channel.

The thresholds were measured in ONNX Runtime 1.32 on an x86 CPU, one thread.
"""

from pockengine.backends.onnx.forms.taps import ImageWindows, Taps, windows_of
from pockengine.backends.onnx.writer import EntryWriter
from pockengine.backends.runtimes.layout import (
    IMAGES_FIRST,
    WEIGHT_FIRST,
    Layout,
    canonical,
    laid_out,
)
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ir.graph import Space

CHANNELS_LAST: Layout = canonical(4)

CHANNELS = 32
"""Minimum channels for channels-last weight gradients, with two more transposes: 1.1 to 4.7
times as fast, and 0.7 times with 16.
"""

GATHERED = 1 << 15
"""Maximum pixels, counted per tap, for which one gather is as fast as slices or twice as fast."""

FEW_PIXELS = 16
"""Maximum pixels of an image for which taps are 1.4 to 3.7 times as fast as the runtime's
convolution; with 36 they are no faster.
"""


def goes_by_taps(w: EntryWriter, weight: Value, y: Value) -> bool:
    """Whether a depthwise convolution to y is faster by taps.

    It is not with a frozen weight: the runtime repacks that in blocks at load time.
    """
    param, pixels = w.graph.param_of(weight), y.shape[1] * y.shape[2]
    constant = weight in w.graph.constants or (param and param.space is Space.CONSTANT)
    return not constant and pixels <= FEW_PIXELS and weight.shape[3] >= CHANNELS


def convolved(w: EntryWriter, x: Value, window: str, y: Value, windows: ImageWindows) -> str:
    """Convolve x by a window [taps, 1, C]; returns y channels-first."""
    seen = _gathered(w, x, y, windows)
    rows = w.node("ReduceSum", w.node("Mul", seen, window), w.numbers([0]), keepdims=0)
    return w.transpose(w.reshape(rows, y.shape), IMAGES_FIRST)


def depthwise_dw(w: EntryWriter, node: Node) -> None:
    """Each tap's sum over images and pixels of x dy.

    With enough channels these are last: pixels are copied whole, and sums add rows.
    """
    (x, dy), shape = node.operands, node.result.shape
    windows, last = windows_of(node.attrs, shape), x.shape[3] >= CHANNELS
    pixels = dy.type.size // dy.shape[3]
    if last and shape[0] * shape[1] * pixels <= GATHERED:
        rows = w.reshape(w.read(dy), (1, pixels, dy.shape[3]))
        product = w.node("Mul", _gathered(w, x, dy, windows), rows)
        total = w.node("ReduceSum", product, w.numbers([1]), keepdims=0)
        w.bind(node.result, w.reshape(total, shape))
        return
    layout, channel_axis = (CHANNELS_LAST, 3) if last else (IMAGES_FIRST, 1)
    name, axes = w.read(dy, layout), w.numbers([axis for axis in range(4) if axis != channel_axis])
    sums = [
        w.node("ReduceSum", w.node("Mul", tap, name), axes, keepdims=1)
        for tap in Taps(w, x, dy, windows=windows, layout=layout)
    ]
    if last:
        w.bind(node.result, w.reshape(w.node("Concat", *sums, axis=0), shape))
        return
    columns = w.node("Concat", *sums, axis=2)
    w.bind(node.result, w.reshape(columns, laid_out(shape, WEIGHT_FIRST)), WEIGHT_FIRST)


def _gathered(w: EntryWriter, x: Value, y: Value, windows: ImageWindows) -> str:
    """Return the pixels of x that each tap sees for each pixel of y: [taps, pixels, C]."""
    taps = Taps(w, x, y, windows=windows, layout=CHANNELS_LAST)
    rows = w.reshape(taps.image, (-1, x.shape[3]))
    return w.node("Gather", rows, w.constant(taps.pixels(y.shape[0])), axis=0)
