"""Random applications of each op, drawn by hypothesis, and PyTorch's meaning of them.

`draw_case(op)` gives operand types and attrs; `TORCH` computes the first result from tensors in our
layouts. Sizes are small and odd: 1, 2, 3, 5, 7.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from pockengine.compiler.ir import BOOL, F32, I64, TensorType
from pockengine.compiler.ops.conv import window_output

Draw = Callable[[Any], Any]
SIZES = st.sampled_from([1, 2, 3, 5, 7])


@dataclass(frozen=True)
class OpCase:
    """One application of an op. `domain` limits the numbers that operands hold."""

    op: str
    types: tuple[TensorType, ...]
    attrs: dict[str, Any]
    domain: str = "any"
    classes: int = 0

    def arrays(self, seed: int) -> list[np.ndarray]:
        """Operand data: normal numbers away from kinks, booleans, or class labels."""
        rng = np.random.default_rng(seed)
        return [self._array(rng, type_) for type_ in self.types]

    def _array(self, rng: np.random.Generator, type_: TensorType) -> np.ndarray:
        if type_.dtype is BOOL:
            return rng.integers(0, 2, type_.shape).astype(bool)
        if type_.dtype is I64:
            return rng.integers(0, self.classes, type_.shape)
        data = 2 * rng.standard_normal(type_.shape)
        if self.domain == "positive":
            data = np.abs(data) + 0.5
        elif self.domain == "small":
            data = np.clip(data / 4, -0.9, 0.9)
        return np.asarray(data, dtype=np.float32)


def _t(*shape: int) -> TensorType:
    return TensorType(F32, shape)


UNARY = {
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "expm1": torch.expm1,
    "log1p": torch.log1p,
}
STEPS = {
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "atan2": torch.atan2,
}
COMPARISONS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}
DOMAINS = {
    **dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal", "div", "pow", "log1p"), "positive"),
    **dict.fromkeys(("asin", "acos", "tan"), "small"),
}


@st.composite
def _broadcastable(draw: Draw, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together: dimensions dropped from the front, or set to 1."""
    shape = draw(st.lists(SIZES, min_size=0, max_size=4))
    shapes = []
    for _ in range(count):
        kept = shape[draw(st.integers(0, len(shape))) :]
        shapes.append(tuple(size if draw(st.booleans()) else 1 for size in kept))
    return shapes


@st.composite
def _elementwise(draw: Draw, op: str, count: int, attrs: dict[str, Any]) -> OpCase:
    shapes = draw(_broadcastable(count))
    types = [TensorType(F32, shape) for shape in shapes]
    if op == "where":
        types[0] = TensorType(BOOL, shapes[0])
    return OpCase(op, tuple(types), attrs, DOMAINS.get(op, "any"))


@st.composite
def _reduction(draw: Draw, op: str) -> OpCase:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    keep = draw(st.booleans())
    return OpCase(op, (_t(*shape),), {"axes": tuple(sorted(axes)), "keepdims": keep})


@st.composite
def _matmul(draw: Draw, op: str) -> OpCase:
    m, k, n = (draw(SIZES) for _ in range(3))
    ta, tb = draw(st.booleans()), draw(st.booleans())
    batch = draw(st.lists(SIZES, max_size=2))
    a = (*batch, *((k, m) if ta else (m, k)))
    b = (n, k) if tb else (k, n)
    if draw(st.booleans()):
        b = (*batch, *b)
    return OpCase(op, (_t(*a), _t(*b)), {"transpose_a": ta, "transpose_b": tb})


@st.composite
def _window(draw: Draw, kernel: tuple[int, int]) -> tuple[tuple[int, int], dict[str, Any]]:
    """Draw an image size that the window fits into, with its stride, padding and dilation."""
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    low = [max(1, reach[0] - padding[0] - padding[1]), max(1, reach[1] - padding[2] - padding[3])]
    size = (draw(st.integers(low[0], low[0] + 4)), draw(st.integers(low[1], low[1] + 4)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return size, {"stride": stride, "padding": padding, "dilation": dilation}


@st.composite
def _conv(draw: Draw, op: str) -> OpCase:
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    size, attrs = draw(_window(kernel))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    i, o = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = _t(draw(st.integers(1, 2)), *size, groups * i)
    w = _t(*kernel, i, groups * o)
    return OpCase(op, (x, w), {**attrs, "groups": groups})


@st.composite
def _pool(draw: Draw, op: str) -> OpCase:
    kernel = (draw(st.integers(2, 3)), draw(st.integers(2, 3)))
    size, attrs = draw(_window(kernel))
    attrs["padding"] = tuple(draw(st.integers(0, 1)) for _ in range(4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilation"], strict=True)]
    size = (max(size[0], reach[0]), max(size[1], reach[1]))
    if op == "avg_pool2d":
        del attrs["dilation"]
        attrs["count_include_pad"] = draw(st.booleans())
    return OpCase(op, (_t(2, *size, draw(SIZES)),), {**attrs, "kernel": kernel})


@st.composite
def _movement(draw: Draw, op: str) -> OpCase:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=4)))
    rank = len(shape)
    attrs: dict[str, Any]
    if op == "reshape":
        attrs = {"shape": (math.prod(shape[:1]), math.prod(shape[1:]))}
    elif op == "transpose":
        attrs = {"perm": tuple(draw(st.permutations(range(rank))))}
    elif op == "broadcast_to":
        attrs = {"shape": (3, *(size if size > 1 else 4 for size in shape))}
    elif op == "pad":
        low, high = (tuple(draw(st.integers(0, 2)) for _ in shape) for _ in range(2))
        attrs = {"low": low, "high": high, "value": 0.5}
    elif op == "cumsum":
        attrs = {"axis": draw(st.integers(0, rank - 1)), "reverse": draw(st.booleans())}
    elif op == "reverse":
        attrs = {"axes": tuple(draw(st.sets(st.integers(0, rank - 1))))}
    elif op in ("layer_norm", "rms_norm"):
        attrs = {"eps": 1e-3}
    else:
        start = tuple(draw(st.integers(0, size - 1)) for size in shape)
        spans = zip(start, shape, strict=True)
        stop = tuple(draw(st.integers(first + 1, size)) for first, size in spans)
        attrs = {"start": start, "stop": stop, "step": tuple(draw(SIZES) for _ in shape)}
    return OpCase(op, (_t(*shape),), attrs)


@st.composite
def _indexed(draw: Draw, op: str) -> OpCase:
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    classes = shape[axis]
    if op == "take":
        index = tuple(draw(st.lists(SIZES, max_size=2)))
        return OpCase(op, (_t(*shape), TensorType(I64, index)), {"axis": axis}, classes=classes)
    index = (*shape[:axis], draw(SIZES), *shape[axis + 1 :])
    attrs: dict[str, Any] = {"axis": axis}
    x = _t(*shape)
    if op == "take_along_dx":
        attrs["input_shape"], x = tuple(shape), _t(*index)
    return OpCase(op, (x, TensorType(I64, index)), attrs, classes=classes)


@st.composite
def _conv_transpose(draw: Draw, op: str) -> OpCase:
    forward = draw(_conv("conv2d"))
    x, w = forward.types
    size = window_output(x.shape[1:3], w.shape[:2], forward.attrs)
    dy = _t(x.shape[0], *size, w.shape[3])
    return OpCase(op, (dy, w), {**forward.attrs, "input_shape": x.shape})


@st.composite
def _concat(draw: Draw, op: str) -> OpCase:
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        parts.append(_t(*shape[:axis], draw(SIZES), *shape[axis + 1 :]))
    return OpCase(op, tuple(parts), {"axis": axis})


@st.composite
def _rows(draw: Draw, op: str) -> OpCase:
    rows, classes = draw(SIZES), draw(SIZES)
    types = (_t(rows, classes),)
    if op == "cross_entropy":
        types = (*types, TensorType(I64, (rows,)))
    return OpCase(op, types, {}, classes=classes)


@st.composite
def _batch_norm(draw: Draw, op: str) -> OpCase:
    channels = draw(SIZES)
    x = _t(draw(st.integers(2, 5)), draw(SIZES), draw(SIZES), channels)
    return OpCase(op, (x, _t(channels), _t(channels)), {"eps": 1e-3})


def draw_case(op: str) -> st.SearchStrategy[OpCase]:
    """Strategy of random applications of `op`."""
    if op in UNARY or op in STEPS:
        return _elementwise(op, 1, {})
    if op in BINARY or op in COMPARISONS:
        return _elementwise(op, 2, {})
    special: dict[str, Callable[[], st.SearchStrategy[OpCase]]] = {
        "clamp": lambda: _elementwise(op, 1, {"min": -0.7, "max": 1.3}),
        "hardtanh": lambda: _elementwise(op, 1, {"min": 0.0, "max": 1.5}),
        "where": lambda: _elementwise(op, 3, {}),
        "matmul": lambda: _matmul(op),
        "conv2d": lambda: _conv(op),
        "conv2d_dx": lambda: _conv_transpose(op),
        "concat": lambda: _concat(op),
        "batch_norm": lambda: _batch_norm(op),
    }
    if op in special:
        return special[op]()
    families: dict[str, Callable[[str], st.SearchStrategy[OpCase]]] = {
        "reduce_": _reduction,
        "max_pool": _pool,
        "avg_pool": _pool,
        "take": _indexed,
    }
    for prefix, family in families.items():
        if op.startswith(prefix):
            return family(op)
    return _rows(op) if op in ("softmax", "log_softmax", "cross_entropy") else _movement(op)


def _nchw(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2)


def _nhwc(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def _padded(x: torch.Tensor, padding: tuple[int, ...], value: float = 0.0) -> torch.Tensor:
    top, bottom, left, right = padding
    return F.pad(_nchw(x), (left, right, top, bottom), value=value)


def _torch_conv(x: torch.Tensor, w: torch.Tensor, **a: Any) -> torch.Tensor:
    # PyTorch's plain convolution refuses the gradient of weights of some strides.
    image, weight = _padded(x, a["padding"]).contiguous(), w.permute(3, 2, 0, 1).contiguous()
    y = F.conv2d(image, weight, stride=a["stride"], dilation=a["dilation"], groups=a["groups"])
    return _nhwc(y)


def _torch_max_pool(x: torch.Tensor, **a: Any) -> torch.Tensor:
    image = _padded(x, a["padding"], -math.inf)
    return _nhwc(F.max_pool2d(image, a["kernel"], a["stride"], dilation=a["dilation"]))


def _torch_avg_pool(x: torch.Tensor, **a: Any) -> torch.Tensor:
    total = F.avg_pool2d(_padded(x, a["padding"]), a["kernel"], a["stride"])
    if a["count_include_pad"]:
        return _nhwc(total)
    ones = _padded(torch.ones(1, *x.shape[1:3], 1), a["padding"])
    return _nhwc(total / F.avg_pool2d(ones, a["kernel"], a["stride"]))


def _torch_matmul(a: torch.Tensor, b: torch.Tensor, **attrs: Any) -> torch.Tensor:
    a = a.transpose(-1, -2) if attrs["transpose_a"] else a
    return a @ (b.transpose(-1, -2) if attrs["transpose_b"] else b)


def _torch_batch_norm(
    x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float
) -> torch.Tensor:
    return _nhwc(F.batch_norm(_nchw(x), None, None, gamma, beta, training=True, eps=eps))


def _torch_pad(
    x: torch.Tensor, low: tuple[int, ...], high: tuple[int, ...], value: float
) -> torch.Tensor:
    pairs = list(zip(low, high, strict=True))[::-1]
    return F.pad(x, [size for pair in pairs for size in pair], value=value)


def _torch_slice(x: torch.Tensor, **a: Any) -> torch.Tensor:
    spans = zip(a["start"], a["stop"], a["step"], strict=True)
    return x[tuple(slice(*span) for span in spans)]


def _torch_prod(x: torch.Tensor, axes: tuple[int, ...], keepdims: bool) -> torch.Tensor:
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keepdims)
    return x


def _torch_cumsum(x: torch.Tensor, axis: int, reverse: bool) -> torch.Tensor:
    return x.flip(axis).cumsum(axis).flip(axis) if reverse else x.cumsum(axis)


def _torch_take(x: torch.Tensor, index: torch.Tensor, axis: int) -> torch.Tensor:
    taken = x.index_select(axis, index.reshape(-1))
    return taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _torch_scatter(
    dy: torch.Tensor, index: torch.Tensor, axis: int, input_shape: tuple[int, ...]
) -> torch.Tensor:
    return torch.zeros(input_shape).scatter_add(axis, index, dy)


def _torch_conv_transpose(dy: torch.Tensor, w: torch.Tensor, **a: Any) -> torch.Tensor:
    """Pad the transposed convolution's result to the whole input, then cut the padding off."""
    y = F.conv_transpose2d(
        _nchw(dy).contiguous(),
        w.permute(3, 2, 0, 1).contiguous(),
        None,
        a["stride"],
        0,
        0,
        a["groups"],
        a["dilation"],
    )
    top, bottom, left, right = a["padding"]
    height, width = a["input_shape"][1] + top + bottom, a["input_shape"][2] + left + right
    y = F.pad(y, (0, width - y.shape[3], 0, height - y.shape[2]))
    return _nhwc(y[:, :, top : height - bottom, left : width - right])


TORCH: dict[str, Callable[..., torch.Tensor]] = {
    **UNARY,
    **STEPS,
    **BINARY,
    **COMPARISONS,
    "clamp": lambda x, min, max: torch.clamp(x, min, max),
    "hardtanh": lambda x, min, max: F.hardtanh(x, min, max),
    "where": torch.where,
    "reduce_sum": lambda x, axes, keepdims: x.sum(axes, keepdim=keepdims),
    "reduce_mean": lambda x, axes, keepdims: x.mean(axes, keepdim=keepdims),
    "reduce_max": lambda x, axes, keepdims: x.amax(axes, keepdim=keepdims),
    "reduce_min": lambda x, axes, keepdims: x.amin(axes, keepdim=keepdims),
    "reduce_prod": _torch_prod,
    "cumsum": _torch_cumsum,
    "reverse": lambda x, axes: x.flip(axes),
    "take": lambda x, index, axis: _torch_take(x, index, axis),
    "take_along": lambda x, index, axis: torch.gather(x, axis, index),
    "take_along_dx": _torch_scatter,
    "layer_norm": lambda x, eps: F.layer_norm(x, x.shape[-1:], eps=eps),
    "rms_norm": lambda x, eps: F.rms_norm(x, x.shape[-1:], eps=eps),
    "conv2d_dx": _torch_conv_transpose,
    "matmul": _torch_matmul,
    "conv2d": _torch_conv,
    "max_pool2d": _torch_max_pool,
    "avg_pool2d": _torch_avg_pool,
    "batch_norm": _torch_batch_norm,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "cross_entropy": F.cross_entropy,
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, perm: x.permute(perm),
    "broadcast_to": lambda x, shape: x.broadcast_to(shape),
    "concat": lambda *parts, axis: torch.cat(parts, axis),
    "pad": _torch_pad,
    "slice": _torch_slice,
}
DIFFERENTIABLE = sorted(set(TORCH) - set(COMPARISONS) - set(STEPS))
