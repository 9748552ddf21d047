"""Neural-net operations of channels-first frameworks, in our ops."""

import math
from dataclasses import dataclass

import numpy as np

from pockengine.compiler.ir import Builder, Node, Shape, Value
from pockengine.errors import ImportModelError
from pockengine.frontends import emit
from pockengine.frontends.layout import (
    HWIO,
    IN_OUT,
    NHWC,
    Tensor,
    framework_order,
    plain,
    reshape,
    stored,
)


class Unsupported(ImportModelError):
    """An unsupported feature; the importer collects these with their places."""


@dataclass(frozen=True)
class Window:
    """Window of a kernel: sizes are (height, width), padding (top, bottom, left, right).

    For volumes the depth comes first, and its padding (front, back).
    """

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape = (1, 1)

    def ceiled(self, size: Shape) -> "Window":
        """Pad below and right so that the last, incomplete window counts (ceil_mode).

        A window that would start in the padding after the picture is dropped.
        """
        padding = list(self.padding)
        for i in range(len(size)):
            before, after = self.padding[2 * i : 2 * i + 2]
            reach = self.dilation[i] * (self.kernel[i] - 1) + 1
            span = size[i] + before + after - reach
            steps = -(-span // self.stride[i])
            if steps * self.stride[i] >= size[i] + before:
                steps -= 1
            padding[2 * i + 1] += max(steps * self.stride[i] - span, 0)
        return Window(self.kernel, self.stride, tuple(padding), self.dilation)


def same_padding(kernel: Shape, dilation: Shape) -> Shape:
    """Pad so that a stride of 1 keeps the size; an odd pixel goes below and right."""
    reach = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
    return tuple(side for size in reach for side in (size // 2, size - size // 2))


def conv2d(
    g: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
) -> Tensor:
    """Convolve (N, C, H, W) by (O, C / groups, KH, KW) and add a bias of (O,)."""
    y = g.conv2d(
        stored(g, x, NHWC),
        stored(g, weight, HWIO),
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
    )
    return Tensor(y if bias is None else g.add(y, framework_order(g, bias)), NHWC)


def linear(g: Builder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map (..., in) by a weight of (out, in) and add a bias of (out,)."""
    *lead, inner = x.shape
    rows = reshape(g, x, (x.value.type.size // inner, inner))
    swapped = weight.layout == IN_OUT
    y = g.matmul(framework_order(g, rows), weight.value, transpose_b=not swapped)
    if bias is not None:
        y = g.add(y, framework_order(g, bias))
    return reshape(g, plain(y), (*lead, weight.shape[0]))


@dataclass(frozen=True)
class NormParams:
    """A batch norm's tensors of (C,): scale and shift, which may be absent, and statistics."""

    gamma: Tensor | None
    beta: Tensor | None
    mean: Tensor | None
    var: Tensor | None
    eps: float

    def affine(self, g: Builder, channels: int) -> tuple[Value, Value]:
        """Return scale and shift; ones and zeros where the layer has none."""
        gamma, beta = (
            g.constant(np.full(channels, missing, np.float32))
            if tensor is None
            else framework_order(g, tensor)
            for tensor, missing in ((self.gamma, 1), (self.beta, 0))
        )
        return gamma, beta


def batch_norm_training(
    g: Builder, x: Tensor, norm: NormParams, momentum: float | Tensor
) -> Tensor:
    """Normalize (N, C, ...) by the batch's own statistics and update the running ones.

    The running variance takes the unbiased one, as in PyTorch.
    """
    layout = _channels_last(x)
    value = stored(g, x, layout)
    gamma, beta = norm.affine(g, value.shape[-1])
    y, mean, var = g.emit("batch_norm", value, gamma, beta, eps=norm.eps).results
    count = value.type.size // value.shape[-1]
    _keep_statistics(g, norm, (mean, var), momentum=momentum, count=count)
    return Tensor(y, layout)


def instance_norm_training(g: Builder, x: Tensor, norm: NormParams, momentum: float) -> Tensor:
    """Normalize each sample of (N, C, ...) by its own statistics and update the running ones.

    Those take the mean over the samples. It is a batch norm of one sample with N C channels.
    """
    samples, channels, *sizes = x.shape
    lines = reshape(g, x, (1, samples * channels, *sizes))
    layout = _channels_last(lines)
    value = stored(g, lines, layout)
    affine = [
        g.reshape(g.broadcast_to(part, shape=(samples, channels)), shape=(samples * channels,))
        for part in norm.affine(g, channels)
    ]
    y, *statistics = g.emit("batch_norm", value, *affine, eps=norm.eps).results
    mean, var = (
        g.reduce_mean(g.reshape(part, shape=(samples, channels)), axes=(0,)) for part in statistics
    )
    count = value.type.size // value.shape[-1]
    _keep_statistics(g, norm, (mean, var), momentum=momentum, count=count)
    return reshape(g, Tensor(y, layout), x.shape)


def _keep_statistics(
    g: Builder,
    norm: NormParams,
    statistics: tuple[Value, Value],
    momentum: float | Tensor,
    count: int,
) -> None:
    """Update the running mean and variance, if the norm has any, from `count` elements each.

    By a momentum of 0 as well: the update shows which statistics evaluation reads.
    """
    if norm.mean is None or norm.var is None:
        return
    states = (norm.mean.value, norm.var.value)
    if any(g.graph.param_of(state) is None for state in states):
        if not isinstance(momentum, Tensor) and momentum == 0:
            return
        raise Unsupported("running statistics that are no buffers of the module")
    scales = (1.0, count / (count - 1) if count > 1 else math.nan)
    for state, value, scale in zip(states, statistics, scales, strict=True):
        if isinstance(momentum, Tensor):
            _average(g, state, g.mul(value, g.scalar(scale)), momentum.value)
        else:
            _track(g, state, value, momentum=momentum, scale=scale)


def _average(g: Builder, state: Value, value: Value, share: Value) -> None:
    """Move a running statistic by a share that is computed in the step."""
    if any(node.op == "assign" and node.operands[0] is state for node in g.graph.nodes):
        raise Unsupported("an average of all batches, of a norm that is applied twice in a step")
    old = g.mul(state, g.sub(g.scalar(1.0), share))
    g.emit("assign", state, g.add(old, g.mul(value, share)))


def _track(g: Builder, state: Value, value: Value, momentum: float, scale: float) -> None:
    """Move a running statistic towards this batch's.

    A layer that is applied several times in a step moves it each time. A state is written once per
    step, so the values are combined into one: s' = (1 - m) s + m v.
    """
    nodes = g.graph.nodes
    before = next((n for n in nodes if n.op == "ema_update" and n.operands[0] is state), None)
    if before is not None:
        nodes.remove(before)
        first = before.attrs["momentum"]
        whole = 1 - (1 - first) * (1 - momentum)
        weights = _share(before, momentum), momentum * scale
        shares = [weight / whole for weight in weights] if whole else [1.0, 1.0]
        old = g.mul(before.operands[1], g.scalar(shares[0]))
        value = g.add(old, g.mul(value, g.scalar(shares[1])))
        momentum, scale = whole, 1.0
    g.emit("ema_update", state, value, momentum=momentum, scale=scale)


def _share(update: Node, momentum: float) -> float:
    """Return the weight that an earlier batch keeps after a later one with this momentum."""
    share: float = (1 - momentum) * update.attrs["momentum"] * update.attrs["scale"]
    return share


def batch_norm_frozen(g: Builder, x: Tensor, norm: NormParams) -> Tensor:
    """Normalize (N, C, ...) by the running statistics: one multiplication and one addition.

    y = x scale + (beta - mean scale) with scale = gamma / sqrt(var + eps), computed on (C,).
    """
    if norm.mean is None or norm.var is None:
        raise Unsupported("batch norm in evaluation mode without running statistics")
    layout = _channels_last(x)
    value = stored(g, x, layout)
    gamma, beta = norm.affine(g, value.shape[-1])
    variance = g.add(framework_order(g, norm.var), g.scalar(norm.eps))
    scale = g.mul(gamma, g.rsqrt(variance))
    shift = g.sub(beta, g.mul(framework_order(g, norm.mean), scale))
    return Tensor(g.add(g.mul(value, scale), shift), layout)


def _channels_last(x: Tensor) -> tuple[int, ...]:
    """Return the layout that stores dimension 1, the channels, last."""
    return (0, *range(2, x.rank), 1)


def max_pool2d(g: Builder, x: Tensor, window: Window) -> Tensor:
    """Take the maximum of each window of (N, C, H, W)."""
    value = g.max_pool2d(
        stored(g, x, NHWC),
        kernel=window.kernel,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
    )
    return Tensor(value, NHWC)


def avg_pool2d(g: Builder, x: Tensor, window: Window, count_padding: bool) -> Tensor:
    """Average each window of (N, C, H, W)."""
    value = g.avg_pool2d(
        stored(g, x, NHWC),
        kernel=window.kernel,
        stride=window.stride,
        padding=window.padding,
        count_include_pad=count_padding,
    )
    return Tensor(value, NHWC)


def adaptive_avg_pool2d(g: Builder, x: Tensor, output: tuple[int, int]) -> Tensor:
    """Average (N, C, H, W) down (or up) to this height and width, by bins that may overlap."""
    size = (x.shape[2], x.shape[3])
    if output == size:
        return x
    if output == (1, 1):
        return emit.reduce(g, "reduce_mean", x, (2, 3), keepdims=True)
    if size[0] % output[0] or size[1] % output[1]:
        return average_bins(g, average_bins(g, x, 2, output[0]), 3, output[1])
    kernel = (size[0] // output[0], size[1] // output[1])
    return avg_pool2d(g, x, Window(kernel, kernel, (0, 0, 0, 0)), count_padding=True)


def average_bins(g: Builder, x: Tensor, dim: int, count: int) -> Tensor:
    """Average dimension `dim` in `count` bins [floor(i n / count), ceil((i + 1) n / count))."""
    size = x.shape[dim]
    weights = np.zeros((size, count), np.float32)
    for i in range(count):
        first, end = i * size // count, -(-(i + 1) * size // count)
        weights[first:end, i] = 1 / (end - first)
    return along_dim(g, x, dim, weights)


def max_bins(g: Builder, x: Tensor, dim: int, count: int) -> Tensor:
    """Take the maximum of dimension `dim` in `count` bins, which may overlap."""
    size = x.shape[dim]
    parts = []
    for i in range(count):
        part = emit.slice_dim(g, x, dim, start=i * size // count, stop=-(-(i + 1) * size // count))
        parts.append(first_maximum(g, part, dim))
    return emit.concat(g, parts, dim)


def first_maximum(g: Builder, x: Tensor, dim: int) -> Tensor:
    """Keep the maximum along a dimension; the first of equal elements gets the gradient."""
    axis, shape = x.axis(dim), list(x.value.shape)
    shape[axis] = 1
    place = g.reshape(g.argmax(x.value, axis=axis), shape=tuple(shape))
    return Tensor(g.take_along(x.value, place, axis=axis), x.layout)


def along_dim(g: Builder, x: Tensor, dim: int, weights: np.ndarray) -> Tensor:
    """Multiply a constant matrix (old size, new size) along one dimension."""
    layout = (*(other for other in x.layout if other != dim), dim)
    value = stored(g, x, layout)
    *lead, size = value.shape
    rows = g.reshape(value, shape=(value.type.size // size, size))
    product = g.matmul(rows, g.constant(weights))
    return Tensor(g.reshape(product, shape=(*lead, weights.shape[1])), layout)
