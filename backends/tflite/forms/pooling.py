"""Pooling."""

import math
from collections.abc import Mapping

import numpy as np

from pockengine.backends.tflite.forms.form import Form
from pockengine.backends.tflite.forms.windows import PaddedWindow
from pockengine.backends.tflite.kinds import FLOAT, TRUTH
from pockengine.backends.tflite.parts import LiteTensor
from pockengine.backends.tflite.writer import EntryWriter
from pockengine.compiler.ir import Node


def _max_pool2d(w: EntryWriter, node: Node) -> None:
    """The runtime's own, fixed to propagate NaN."""
    (x,), attrs = node.operands, node.attrs
    window = PaddedWindow.of(attrs, x.shape[1:3], attrs["kernel"])
    image = w.read(x)
    most = _largest(w, image, window, w.scalar(-np.inf))
    odd = w.cast(w.broadcast("NOT_EQUAL", image, image, kind=TRUTH), FLOAT)
    where = _largest(w, odd, window, w.scalar(0.0))
    nan = w.broadcast("GREATER", where, w.scalar(0.0), kind=TRUTH)
    w.bind(node.result, w.broadcast("SELECT_V2", nan, w.scalar(math.nan), most))


def _largest(
    w: EntryWriter, x: LiteTensor, window: PaddedWindow, outside: LiteTensor
) -> LiteTensor:
    if window.dilation == (1, 1):
        return _pooled(w, "MAX_POOL_2D", x, window=window, outside=outside)
    most, *others = window.taps(w, window.pad(w, x, outside))
    for tap in others:
        most = w.broadcast("MAXIMUM", most, tap)
    return most


def _pooled(
    w: EntryWriter, op: str, x: LiteTensor, window: PaddedWindow, outside: LiteTensor | None
) -> LiteTensor:
    image, attrs = window.prepared(w, x, outside)
    high, wide = window.kernel
    shape = (x.shape[0], *window.output, x.shape[3])
    return w.op(op, image, shape=shape, FilterHeight=high, FilterWidth=wide, **attrs)


def _avg_pool2d(w: EntryWriter, node: Node) -> None:
    """Average over the window, or over its part inside the image."""
    (x,), attrs = node.operands, node.attrs
    window = PaddedWindow.of(attrs, x.shape[1:3], attrs["kernel"])
    whole, name = attrs["count_include_pad"], window.named
    if name == "VALID" or (name == "SAME" and not whole):
        w.bind(node.result, _pooled(w, "AVERAGE_POOL_2D", w.read(x), window=window, outside=None))
        return
    inside = PaddedWindow(
        window.padded, window.kernel, window.stride, dilation=(1, 1), padding=(0, 0, 0, 0)
    )
    means = _pooled(w, "AVERAGE_POOL_2D", window.pad(w, w.read(x)), window=inside, outside=None)
    if not whole:
        means = w.broadcast("MUL", means, w.constant(_shares(window)))
    w.bind(node.result, means)


def _shares(window: PaddedWindow) -> np.ndarray:
    """Factors from the mean over a window to the mean over its pixels in the image."""
    top, bottom, left, right = window.padding
    image = np.pad(np.ones(window.size, np.float32), ((top, bottom), (left, right)))
    counts = sum(image[slice(*rows), slice(*columns)] for rows, columns in window.spans())
    return np.asarray(window.kernel[0] * window.kernel[1] / counts, np.float32)[None, :, :, None]


FORMS: Mapping[str, Form] = {"max_pool2d": _max_pool2d, "avg_pool2d": _avg_pool2d}
