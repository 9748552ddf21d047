"""2-D convolution, NHWC x HWIO, and its two gradients as ops of their own.

    x (N, H, W, C)   w (KH, KW, C / groups, O)   y (N, OH, OW, O)

`padding` is (top, bottom, left, right). A depthwise convolution has groups = C, w (KH, KW, 1, O).
Operands are f32 or i8; `zeros` are subtracted first, and padding counts as 0 after that. With two
i8 operands the result is the i32 sum.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, Shape, TensorType
from pockengine.compiler.ops.elementwise import scaled
from pockengine.compiler.ops.product import PRODUCT, STORAGE, product_dtype, summed, without_zeros
from pockengine.compiler.ops.registry import REQUIRED, Arrays, ChannelSet, Layer, Types, define
from pockengine.compiler.ops.shape import part_of_axis
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
WINDOW = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
CONV = {**WINDOW, "groups": 1}


def window_output(size: Shape, kernel: Shape, attrs: Attrs) -> tuple[int, int]:
    """Output height and width of a window sliding over (H, W) = `size`; GraphError if it does
    not fit.
    """
    top, bottom, left, right = attrs["padding"]
    dilation = attrs.get("dilation", (1, 1))
    padded = (size[0] + top + bottom, size[1] + left + right)
    result = []
    for extent, k, stride, step in zip(padded, kernel, attrs["stride"], dilation, strict=True):
        reach = (k - 1) * step + 1
        if reach > extent:
            raise GraphError(
                f"a window of {tuple(kernel)} (dilation {dilation}) does not fit into {size} "
                f"with padding {attrs['padding']}"
            )
        result.append((extent - reach) // stride + 1)
    return result[0], result[1]


def window_taps(
    padded: np.ndarray, kernel: Shape, output: tuple[int, int], attrs: Attrs
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (kh, kw, view): the padded pixels, shape (N, OH, OW, C), that each tap reads."""
    (sh, sw), (dh, dw) = attrs["stride"], attrs.get("dilation", (1, 1))
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            rows = slice(kh * dh, kh * dh + (output[0] - 1) * sh + 1, sh)
            columns = slice(kw * dw, kw * dw + (output[1] - 1) * sw + 1, sw)
            yield kh, kw, padded[:, rows, columns]


def pad_image(x: np.ndarray, padding: Shape, value: float = 0.0) -> np.ndarray:
    """Pad an (N, H, W, C) array by (top, bottom, left, right)."""
    top, bottom, left, right = padding
    width = ((0, 0), (top, bottom), (left, right), (0, 0))
    return np.pad(x, width, constant_values=value)


def crop_image(x: np.ndarray, padding: Shape) -> np.ndarray:
    """Undo `pad_image`."""
    top, bottom, left, right = padding
    return x[:, top : x.shape[1] - bottom, left : x.shape[2] - right]


def _check_channels(x: Shape, w: Shape, groups: int) -> None:
    if w[2] * groups != x[3] or w[3] % groups:
        raise GraphError(
            f"conv2d of x {x} (NHWC) and w {w} (HWIO) in {groups} groups: "
            f"{x[3]} input channels need I = {x[3] / groups:g} and O divisible by {groups}"
        )


def _infer(types: Types, attrs: Attrs) -> Types:
    x, w = types
    if x.rank != 4 or w.rank != 4:
        raise GraphError(f"conv2d needs NHWC and HWIO, not {x} and {w}")
    dtype = product_dtype("conv2d", types, attrs)
    _check_channels(x.shape, w.shape, attrs["groups"])
    height, width = window_output(x.shape[1:3], w.shape[:2], attrs)
    return (TensorType(dtype, (x.shape[0], height, width, w.shape[3])),)


def _infer_dx(types: Types, attrs: Attrs) -> Types:
    dy, w = types
    x = TensorType(product_dtype("conv2d_dx", types, attrs), attrs["input_shape"])
    if _result_shape(x, w, attrs) != dy.shape:
        raise GraphError(f"conv2d_dx: {dy} is no result of conv2d on {x} and {w}")
    return (x,)


def _infer_dw(types: Types, attrs: Attrs) -> Types:
    x, dy = types
    w = TensorType(product_dtype("conv2d_dw", types, attrs), attrs["weight_shape"])
    if _result_shape(x, w, attrs) != dy.shape:
        raise GraphError(f"conv2d_dw: {dy} is no result of conv2d on {x} and {w}")
    return (w,)


def _result_shape(x: TensorType, w: TensorType, attrs: Attrs) -> Shape:
    """Return the shape that a convolution of f32 operands of these shapes would have."""
    shapes = TensorType(F32, x.shape), TensorType(F32, w.shape)
    return _infer(shapes, {**attrs, **PRODUCT})[0].shape


def _split(array: np.ndarray, groups: int) -> np.ndarray:
    """Split the last axis C into (groups, C / groups), in double precision."""
    return array.reshape(*array.shape[:-1], groups, -1).astype(np.float64)


def _eval(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, w = without_zeros(arrays, attrs)
    groups = attrs["groups"]
    height, width = window_output(x.shape[1:3], w.shape[:2], attrs)
    taps, weights = pad_image(x, attrs["padding"]), _split(w, groups)
    y = np.zeros((x.shape[0], height, width, groups, w.shape[3] // groups))
    for kh, kw, view in window_taps(taps, w.shape, (height, width), attrs):
        y += np.einsum("nhwgi,igo->nhwgo", _split(view, groups), weights[kh, kw], optimize=True)
    return (summed(y.reshape(*y.shape[:3], -1), arrays),)


def _eval_dx(arrays: Arrays, attrs: Attrs) -> Arrays:
    dy, w = without_zeros(arrays, attrs)
    groups = attrs["groups"]
    weights, cotangent = _split(w, groups), _split(dy, groups)
    dx = pad_image(np.zeros(attrs["input_shape"]), attrs["padding"])
    for kh, kw, view in window_taps(dx, w.shape, dy.shape[1:3], attrs):
        tap = np.einsum("nhwgo,igo->nhwgi", cotangent, weights[kh, kw], optimize=True)
        view += tap.reshape(view.shape)
    return (summed(crop_image(dx, attrs["padding"]), arrays),)


def _eval_dw(arrays: Arrays, attrs: Attrs) -> Arrays:
    x, dy = without_zeros(arrays, attrs)
    groups, shape = attrs["groups"], attrs["weight_shape"]
    cotangent = _split(dy, groups)
    dw = np.zeros((*shape[:3], groups, shape[3] // groups))
    for kh, kw, view in window_taps(pad_image(x, attrs["padding"]), shape, dy.shape[1:3], attrs):
        dw[kh, kw] = np.einsum("nhwgi,nhwgo->igo", _split(view, groups), cotangent, optimize=True)
    return (summed(dw.reshape(shape), arrays),)


def _geometry(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in CONV}


def _dx(g: "Builder", node: Node, dy: Value) -> Value:
    """y = x * w  =>  dx = dy correlated with w, spread over the stride."""
    x, w = node.operands
    return g.conv2d_dx(dy, w, input_shape=x.shape, **_geometry(node))


def _dw(g: "Builder", node: Node, dy: Value) -> Value:
    """y = x * w  =>  dw = x correlated with dy."""
    x, w = node.operands
    return g.conv2d_dw(x, dy, weight_shape=w.shape, **_geometry(node))


def _dx_ddy(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = conv2d_dx(dy, w)  =>  the cotangent of dy is dx's convolved with w (transposed conv)."""
    return g.conv2d(dy, node.operands[1], **_geometry(node))


def _dx_dw(g: "Builder", node: Node, dy: Value) -> Value:
    """dx = conv2d_dx(dy, w)  =>  dw = correlation of dx's cotangent with dy."""
    out, w = node.operands
    return g.conv2d_dw(dy, out, weight_shape=w.shape, **_geometry(node))


def _dw_dx(g: "Builder", node: Node, dw: Value) -> Value:
    """dw = conv2d_dw(x, dy)  =>  dx = dy spread by dw's cotangent."""
    x, dy = node.operands
    return g.conv2d_dx(dy, dw, input_shape=x.shape, **_geometry(node))


def _dw_ddy(g: "Builder", node: Node, dw: Value) -> Value:
    """dw = conv2d_dw(x, dy)  =>  the cotangent of dy is x convolved with dw's."""
    return g.conv2d(node.operands[0], dw, **_geometry(node))


def is_depthwise(x: Shape, w: Shape, groups: int) -> bool:
    """Whether every group reads one channel and writes one."""
    return groups == x[3] == w[3]


def _channel_axis(node: Node) -> int | None:
    """Input channels (axis I) of a dense convolution; the groups (axis O) if each writes one."""
    groups, w = node.attrs["groups"], node.operands[1]
    if groups == 1:
        return 2
    return 3 if groups == w.shape[3] else None


def _dw_channels(g: "Builder", node: Node, dy: Value, channels: ChannelSet) -> Value:
    """Gradient of w's `channels` only: needs, and so saves, only those channels of x."""
    x, w = node.operands
    shape, geometry, read = list(w.shape), _geometry(node), channels
    shape[_channel_axis(node) or 2] = len(channels)
    if node.attrs["groups"] > 1:
        dy, geometry["groups"] = part_of_axis(g, dy, 3, channels), len(channels)
        read = _read_by_groups(channels, w.shape[2])
    part = part_of_axis(g, x, 3, read)
    return g.conv2d_dw(part, dy, weight_shape=tuple(shape), **geometry)


def _read_by_groups(groups: ChannelSet, size: int) -> ChannelSet:
    """Return the input channels of some groups of this size."""
    if isinstance(groups, range):
        return range(groups.start * size, groups.stop * size)
    return tuple(group * size + channel for group in groups for channel in range(size))


def _low_rank(
    g: "Builder", node: Node, factors: tuple[Value, Value], transposed: bool, scale: float
) -> Value:
    """Convolve with the window of A, then with the pointwise B."""
    a, b = factors
    hidden = g.conv2d(node.operands[0], a, **node.attrs)
    return g.conv2d(scaled(g, hidden, scale), b)


def _refusal(node: Node) -> str | None:
    groups = node.attrs["groups"]
    return None if groups == 1 else f"its convolution has {groups} groups"


def conv_cost(output: Shape, weight: Shape) -> int:
    """Multiply-adds of a convolution or of either gradient: one per output pixel and weight."""
    return output[0] * output[1] * output[2] * math.prod(weight)


define(
    "conv2d",
    "x w",
    attrs={**CONV, **PRODUCT},
    storage=STORAGE,
    product=True,
    infer=_infer,
    eval=_eval,
    vjp={"x": _dx, "w": _dw},
    channel_axis={"w": _channel_axis},
    channel_vjp={"w": _dw_channels},
    linear=(0, 1),
    window=True,
    layer=Layer(weight=1, rank=4, low_rank=_low_rank, refusal=_refusal),
    cost=lambda node: conv_cost(node.result.shape, node.operands[1].shape),
)
define(
    "conv2d_dx",
    "dy w",
    attrs={**CONV, **PRODUCT, "input_shape": REQUIRED},
    storage=STORAGE,
    product=True,
    infer=_infer_dx,
    eval=_eval_dx,
    vjp={"dy": _dx_ddy, "w": _dx_dw},
    linear=(0, 1),
    window=True,
    cost=lambda node: conv_cost(node.operands[0].shape, node.operands[1].shape),
)
define(
    "conv2d_dw",
    "x dy",
    attrs={**CONV, **PRODUCT, "weight_shape": REQUIRED},
    storage=STORAGE,
    product=True,
    infer=_infer_dw,
    eval=_eval_dw,
    vjp={"x": _dw_dx, "dy": _dw_ddy},
    linear=(0, 1),
    window=True,
    cost=lambda node: conv_cost(node.operands[1].shape, node.result.shape),
)
