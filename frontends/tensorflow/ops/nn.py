"""TensorFlow operators of neural nets: products, convolution, pooling, batch norm.

Pictures are NHWC and weights HWIO, as ours are. The shared meanings in `emit_nn` use channels
first; looking at a tensor in that order (`permute`) moves nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pockengine.compiler.ir import Builder, Shape
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.einsum import einsum as emit_einsum
from pockengine.frontends.emit.matrices import turned
from pockengine.frontends.emit.nn import NormParams, Unsupported, Window
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape
from pockengine.frontends.tensorflow.ops.blocks import Spread
from pockengine.frontends.tensorflow.ops.registry import Opaque, TfContext, integers, tf_op

NCHW_OF_NHWC, NHWC_OF_NCHW = (0, 3, 1, 2), (0, 2, 3, 1)
OIHW_OF_HWIO = (3, 2, 0, 1)


@tf_op("MatMul")
def matmul(
    ctx: TfContext, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> Tensor:
    """Multiply two matrices."""
    left = permute(a, (1, 0)) if transpose_a else a
    return emit.matmul(ctx.g, left, permute(b, (1, 0)) if transpose_b else b)


@tf_op("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(
    ctx: TfContext, a: Tensor, b: Tensor, *, adj_x: bool = False, adj_y: bool = False
) -> Tensor:
    """Multiply batches of matrices."""
    return emit.matmul(ctx.g, turned(a) if adj_x else a, turned(b) if adj_y else b)


@tf_op("Einsum")
def einsum(ctx: TfContext, *operands: Tensor, equation: str) -> Tensor:
    """Sum products over the letters that the result lacks."""
    return emit_einsum(ctx.g, equation, operands)


def _channels_first(x: Tensor, data_format: str) -> Tensor:
    return permute(x, NCHW_OF_NHWC) if data_format == "NHWC" else x


def _in_format(y: Tensor, data_format: str) -> Tensor:
    return permute(y, NHWC_OF_NCHW) if data_format == "NHWC" else y


def _spatial(sizes: Sequence[int], data_format: str) -> tuple[int, int]:
    at = 1 if data_format == "NHWC" else 2
    return (sizes[at], sizes[at + 1])


def window_of(
    size: Shape,
    kernel: Shape,
    stride: Shape,
    dilation: Shape,
    padding: str,
    explicit: Sequence[int] = (),
    data_format: str = "NHWC",
) -> Window:
    """Return a kernel's window over a picture or a volume; SAME pads more below and right."""
    if padding == "EXPLICIT":
        at = 2 if data_format == "NHWC" else 4
        top, bottom, left, right = explicit[at : at + 4]
        return Window(kernel, stride, (top, bottom, left, right), dilation)
    sides = []
    for extent, k, step, gap in zip(size, kernel, stride, dilation, strict=True):
        reach = (k - 1) * gap + 1
        whole = max((-(-extent // step) - 1) * step + reach - extent, 0)
        sides += [whole // 2, whole - whole // 2] if padding == "SAME" else [0, 0]
    return Window(kernel, stride, tuple(sides), dilation)


def _define_convolution(name: str, kernel_of: Callable[[Builder, Tensor], Tensor]) -> None:
    """Define a rule; `kernel_of` returns the kernel (O, I / groups, KH, KW) of a weight."""

    @tf_op(name)
    def convolve(
        ctx: TfContext,
        x: Tensor,
        weight: Tensor,
        *,
        strides: list[int],
        padding: str,
        explicit_paddings: Sequence[int] = (),
        data_format: str = "NHWC",
        dilations: Sequence[int] = (1, 1, 1, 1),
    ) -> Tensor:
        """Convolve by (KH, KW, I, O) in groups, or by (KH, KW, C, M): M filters per channel."""
        if isinstance(x, Spread) and _is_plain(x, strides, padding, dilations):
            return _of_spread(convolve, ctx, x, weight)
        picture, kernel = _channels_first(x, data_format), kernel_of(ctx.g, weight)
        steps, gaps = _spatial(strides, data_format), _spatial(dilations, data_format)
        window = window_of(
            _hw(picture),
            _hw(kernel),
            steps,
            dilation=gaps,
            padding=padding,
            explicit=explicit_paddings,
            data_format=data_format,
        )
        groups = picture.shape[1] // kernel.shape[1]
        y = emit_nn.conv2d(ctx.g, picture, kernel, bias=None, window=window, groups=groups)
        return _in_format(y, data_format)


def _depthwise_kernel(g: Builder, weight: Tensor) -> Tensor:
    height, width, channels, multiplier = weight.shape
    if multiplier == 1:
        return permute(weight, (2, 3, 0, 1))
    whole = reshape(g, weight, (height, width, 1, channels * multiplier))
    return permute(whole, OIHW_OF_HWIO)


_define_convolution("Conv2D", lambda g, weight: permute(weight, OIHW_OF_HWIO))
_define_convolution("DepthwiseConv2dNative", _depthwise_kernel)


def _is_plain(x: Spread, strides: Sequence[int], padding: str, dilations: Sequence[int]) -> bool:
    """Return whether a convolution of a spread picture is a dilated one of the whole picture."""
    same_layout = x.layout == (0, 1, 2, 3) and len(x.block) == 2
    return same_layout and padding == "VALID" and {*strides, *dilations} == {1}


def _of_spread(
    convolve: Callable[..., Tensor], ctx: TfContext, x: Spread, weight: Tensor
) -> Spread:
    """Convolve a picture spread over the batch, as a dilated convolution of the original."""
    assert x.whole is not None  # space_to_batch has set it
    step = {"strides": [1, 1, 1, 1], "padding": "VALID"}
    whole = convolve(ctx, x.whole, weight, **step, dilations=[1, *x.block, 1])
    y = convolve(ctx, plain(x.value), weight, **step)
    return Spread(y.value, y.layout, whole=whole, block=x.block)


def _hw(x: Tensor) -> tuple[int, int]:
    return (x.shape[2], x.shape[3])


@tf_op("Conv2DBackpropInput", static=(0,))
def conv2d_transpose(
    ctx: TfContext,
    sizes: np.ndarray,
    weight: Tensor,
    x: Tensor,
    *,
    strides: list[int],
    padding: str,
    explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> Tensor:
    """Transposed convolution: the gradient of a convolution with result x, with respect to its
    input."""
    if data_format != "NHWC":
        raise Unsupported("a transposed convolution of NCHW; use channels_last")
    shape = tuple(integers(sizes))
    kernel = framework_order(ctx.g, weight)
    window = window_of(
        _spatial(shape, "NHWC"),
        (kernel.shape[0], kernel.shape[1]),
        _spatial(strides, "NHWC"),
        dilation=_spatial(dilations, "NHWC"),
        padding=padding,
        explicit=explicit_paddings,
    )
    y = ctx.g.conv2d_dx(
        framework_order(ctx.g, x),
        kernel,
        input_shape=shape,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
    )
    return plain(y)


def _define_pool(name: str, pool: Callable[[Builder, Tensor, Window], Tensor]) -> None:
    @tf_op(name)
    def pooled(
        ctx: TfContext,
        x: Tensor,
        *,
        ksize: list[int],
        strides: list[int],
        padding: str,
        data_format: str = "NHWC",
    ) -> Tensor:
        """Take each window's maximum, or its mean without what is padded."""
        around = [*ksize, *strides]
        if any(around[i] != 1 for i in (0, 4)) or x.rank != 4:
            raise Unsupported(f"pooling by windows {ksize} and strides {strides}; use 2-D pooling")
        kernel, steps = _spatial(ksize, data_format), _spatial(strides, data_format)
        picture = _channels_first(x, data_format)
        window = window_of(_hw(picture), kernel, steps, dilation=(1, 1), padding=padding)
        return _in_format(pool(ctx.g, picture, window), data_format)


_define_pool("MaxPool", emit_nn.max_pool2d)
_define_pool("AvgPool", partial(emit_nn.avg_pool2d, count_padding=False))


@tf_op("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", either=(3, 4))
def fused_batch_norm(
    ctx: TfContext,
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mean: Tensor | np.ndarray,
    var: Tensor | np.ndarray,
    *,
    epsilon: float = 1e-4,
    data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Tensor | Opaque]:
    """Normalize by the batch's statistics, which are also returned, or by the given ones.

    Where they are the batch's, Keras 2's layer norm gives arrays without elements.
    The variance that is given is the unbiased one, meant for running statistics.
    """
    picture = _channels_first(x, data_format)
    hidden = [Opaque("what TensorFlow keeps for the gradient; ours is derived")] * 3
    if not is_training:
        mean, var = (
            plain(ctx.g.constant(part)) if isinstance(part, np.ndarray) else part
            for part in (mean, var)
        )
        norm = NormParams(gamma, beta, mean, var=var, eps=epsilon)
        y = emit_nn.batch_norm_frozen(ctx.g, picture, norm)
        return [_in_format(y, data_format), mean, var, *hidden]
    norm = NormParams(gamma, beta, None, var=None, eps=epsilon)
    y = emit_nn.batch_norm_training(ctx.g, picture, norm, 0.0)
    node = y.value.node
    assert node is not None  # it has just been made
    count = x.size // gamma.size
    unbiased = emit.weighted(ctx.g, plain(node.results[2]), count / max(count - 1, 1))
    return [_in_format(y, data_format), plain(node.results[1]), unbiased, *hidden]


@tf_op("DepthToSpace")
def depth_to_space(
    ctx: TfContext, x: Tensor, *, block_size: int, data_format: str = "NHWC"
) -> Tensor:
    """Spread channels over blocks of pixels."""
    if data_format != "NHWC":
        raise Unsupported("DepthToSpace of NCHW; use channels_last")
    n, height, width, channels = x.shape
    depth = channels // block_size**2
    blocks: Shape = (n, height, width, block_size, block_size, depth)
    spread = permute(reshape(ctx.g, x, blocks), (0, 1, 3, 2, 4, 5))
    return reshape(ctx.g, spread, (n, height * block_size, width * block_size, depth))


def _define_resize(name: str, linear: bool) -> None:
    @tf_op(name, static=(1,))
    def rule(
        ctx: TfContext,
        x: Tensor,
        sizes: np.ndarray,
        *,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
    ) -> Tensor:
        """Resize the rows and columns of NHWC pictures, each by a constant matrix."""
        for dim, new in zip((1, 2), integers(sizes), strict=True):
            if new != x.shape[dim]:
                places = _source(x.shape[dim], new, align_corners, half_pixel_centers)
                weights = (_linear if linear else _nearest)(
                    places, x.shape[dim], half_pixel_centers, align_corners
                )
                x = emit_nn.along_dim(ctx.g, x, dim, weights)
        return x


def _source(old: int, new: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """Return the source coordinate of each new pixel."""
    index = np.arange(new, dtype=np.float64)
    if align_corners and new > 1:
        return index * (old - 1) / (new - 1)
    return (index + 0.5) * old / new - 0.5 if half_pixel_centers else index * old / new


def _nearest(places: np.ndarray, old: int, half: bool, align: bool) -> np.ndarray:
    # The nearest pixel's center is half a pixel further.
    shifted = np.floor(places + 0.5) if half or align else np.floor(places)
    index = np.clip(shifted.astype(np.int64), 0, old - 1)
    return np.eye(old, dtype=np.float32)[:, index]


def _linear(places: np.ndarray, old: int, half: bool, align: bool) -> np.ndarray:
    inside = np.clip(places, 0, old - 1)
    distance = np.abs(np.arange(old)[:, None] - inside[None, :])
    return np.maximum(1 - distance, 0).astype(np.float32)


_define_resize("ResizeBilinear", linear=True)
_define_resize("ResizeNearestNeighbor", linear=False)
