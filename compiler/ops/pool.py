"""2-D pooling over NHWC, with explicit padding (top, bottom, left, right), and its gradients."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.conv import crop_image, pad_image, window_output, window_taps
from pockengine.compiler.ops.registry import REQUIRED, Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
POOL = {"kernel": REQUIRED, "stride": REQUIRED, "padding": (0, 0, 0, 0)}
MAX_POOL = {**POOL, "dilation": (1, 1)}
AVG_POOL = {**POOL, "count_include_pad": True}


def _infer(types: Types, attrs: Attrs) -> Types:
    (x,) = types
    if x.rank != 4 or x.dtype is not F32:
        raise GraphError(f"pooling needs f32 NHWC, not {x}")
    height, width = window_output(x.shape[1:3], attrs["kernel"], attrs)
    return (x.with_shape((x.shape[0], height, width, x.shape[3])),)


def _infer_max_dx(types: Types, attrs: Attrs) -> Types:
    x, dy = types
    if _infer((x,), attrs) != (dy,):
        raise GraphError(f"max_pool2d_dx: {dy} is no result of max_pool2d on {x}")
    return (x,)


def _infer_avg_dx(types: Types, attrs: Attrs) -> Types:
    x = TensorType(F32, attrs["input_shape"])
    if _infer((x,), attrs) != types:
        raise GraphError(f"avg_pool2d_dx: {types[0]} is no result of avg_pool2d on {x}")
    return (x,)


def _eval_max(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    output = window_output(x.shape[1:3], attrs["kernel"], attrs)
    padded = pad_image(x, attrs["padding"], -np.inf)
    taps = [view for _, _, view in window_taps(padded, attrs["kernel"], output, attrs)]
    return (np.max(taps, axis=0),)


def _eval_max_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    """Give each window's cotangent to its maximum: the last NaN, else the first maximum."""
    x, dy = arrays
    first = _places_of_maxima(x, (dy.shape[1], dy.shape[2]), attrs)
    padded = pad_image(x, attrs["padding"])
    dx = np.zeros(padded.shape)
    for index, (_, _, view) in enumerate(window_taps(dx, attrs["kernel"], dy.shape[1:3], attrs)):
        view += np.where(first == index, dy, 0)
    return (crop_image(dx, attrs["padding"]).astype(np.float32),)


def _places_of_maxima(x: np.ndarray, output: tuple[int, int], attrs: Attrs) -> np.ndarray:
    """Return the tap of each window's maximum; padding never is, even against -infinity."""

    def taps(image: np.ndarray, outside: float) -> np.ndarray:
        padded = pad_image(image, attrs["padding"], outside)
        views = window_taps(padded, attrs["kernel"], output, attrs)
        return np.stack([view for _, _, view in views])

    values, inside = taps(x, -np.inf), taps(np.ones_like(x), 0.0) > 0
    maxima = (values == values.max(axis=0)) & inside
    nan = np.isnan(values)
    last_nan = len(values) - 1 - np.argmax(nan[::-1], axis=0)
    return np.asarray(np.where(nan.any(axis=0), last_nan, np.argmax(maxima, axis=0)))


def averaged_pixels(shape: tuple[int, ...], attrs: Attrs) -> np.ndarray:
    """Return how many pixels each window averages over, shape (1, OH, OW, 1)."""
    image = pad_image(np.ones((1, *shape[1:3], 1)), attrs["padding"])
    if attrs["count_include_pad"]:
        image = np.ones_like(image)
    output = window_output(shape[1:3], attrs["kernel"], attrs)
    taps = [view for _, _, view in window_taps(image, attrs["kernel"], output, attrs)]
    return np.asarray(np.sum(taps, axis=0))


def _eval_avg(arrays: Arrays, attrs: Attrs) -> Arrays:
    (x,) = arrays
    output = window_output(x.shape[1:3], attrs["kernel"], attrs)
    padded = pad_image(x.astype(np.float64), attrs["padding"])
    taps = [view for _, _, view in window_taps(padded, attrs["kernel"], output, attrs)]
    return ((np.sum(taps, axis=0) / averaged_pixels(x.shape, attrs)).astype(np.float32),)


def _eval_avg_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    (dy,) = arrays
    share = dy / averaged_pixels(attrs["input_shape"], attrs)
    dx = pad_image(np.zeros(attrs["input_shape"]), attrs["padding"])
    for _, _, view in window_taps(dx, attrs["kernel"], dy.shape[1:3], attrs):
        view += share
    return (crop_image(dx, attrs["padding"]).astype(np.float32),)


def _max_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Route dy to the first maximum of each window, recomputed from x."""
    return g.max_pool2d_dx(node.operands[0], dy, **node.attrs)


def _max_by_taps(g: "Builder", node: Node) -> Value:
    """Sum the taps of each window, counting only its first maximum."""
    (x,) = node.operands
    (top, bottom, left, right), (height, width) = node.attrs["padding"], node.result.shape[1:3]
    (kh, kw), (sh, sw), (dh, dw) = (node.attrs[name] for name in ("kernel", "stride", "dilation"))
    if any(node.attrs["padding"]):
        x = g.pad(x, low=(0, top, left, 0), high=(0, bottom, right, 0), value=-np.inf)
    largest, seen, y = g.stop_gradient(node.result), None, None
    for row, column in np.ndindex(kh, kw):
        start = (0, row * dh, column * dw, 0)
        last = (start[1] + (height - 1) * sh + 1, start[2] + (width - 1) * sw + 1)
        stop = (x.shape[0], *last, x.shape[3])
        tap = g.slice(x, start=start, stop=stop, step=(1, sh, sw, 1))
        hit = g.eq(tap, largest)
        first = hit if seen is None else g.logical_and(hit, g.logical_not(seen))
        seen = hit if seen is None else g.logical_or(seen, hit)
        part = g.where(first, tap, g.scalar(0.0))
        y = part if y is None else g.add(y, part)
    assert y is not None
    return y


def _avg_again(g: "Builder", node: Node, dx: Value) -> Value:
    """dx = avg_pool2d_dx(dy)  =>  the cotangent of dy is the mean of dx's."""
    attrs = {name: node.attrs[name] for name in AVG_POOL}
    return g.avg_pool2d(dx, **attrs)


def _avg_dx(g: "Builder", node: Node, dy: Value) -> Value:
    """Spread dy evenly over each window."""
    return g.avg_pool2d_dx(dy, input_shape=node.operands[0].shape, **node.attrs)


define(
    "max_pool2d",
    "x",
    attrs=MAX_POOL,
    infer=_infer,
    eval=_eval_max,
    vjp={"x": _max_dx},
    formula=_max_by_taps,
    window=True,
)
define(
    "max_pool2d_dx",
    "x dy",
    attrs=MAX_POOL,
    infer=_infer_max_dx,
    eval=_eval_max_dx,
    linear=(1,),
    window=True,
)
define(
    "avg_pool2d",
    "x",
    attrs=AVG_POOL,
    infer=_infer,
    eval=_eval_avg,
    vjp={"x": _avg_dx},
    linear=(0,),
    means=True,
    window=True,
)
define(
    "avg_pool2d_dx",
    "dy",
    attrs={**AVG_POOL, "input_shape": REQUIRED},
    infer=_infer_avg_dx,
    eval=_eval_avg_dx,
    vjp={"dy": _avg_again},
    linear=(0,),
    window=True,
)
