"""TFLite's operators that are not TensorFlow's under another name (those are in `same.py`)."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.layout import IN_OUT, Layout, Tensor, permute, plain, stored
from pockengine.frontends.tensorflow.lite.activation import activated
from pockengine.frontends.tensorflow.lite.registry import LiteContext, lite_op
from pockengine.frontends.tensorflow.ops import RULES
from pockengine.frontends.tensorflow.ops.nn import NCHW_OF_NHWC, NHWC_OF_NCHW, window_of
from pockengine.frontends.tensorflow.ops.registry import integers

OHWI: Layout = (1, 2, 3, 0)
"""Our (KH, KW, I, O) of a weight that TFLite stores as (O, KH, KW, I)."""
DEPTHWISE: Layout = (1, 2, 0, 3)
"""Our (KH, KW, 1, C) of a depthwise weight that TFLite stores as (1, KH, KW, C)."""


def _define(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @lite_op(name)
    def rule(ctx: LiteContext, options: Any, *operands: Tensor) -> Tensor:
        return emitted(ctx.g, *operands)


# Operators that TensorFlow has none of the same meaning for
for _name, _meaning in (("HARD_SWISH", "hard_swish"), ("PRELU", "prelu")):
    _define(_name, _meaning)


def _define_arithmetic(name: str, op: str) -> None:
    @lite_op(name)
    def rule(ctx: LiteContext, options: Any, a: Tensor, b: Tensor) -> Tensor:
        y = emit.elementwise(ctx.g, op, a, b)
        return activated(ctx, y, options.FusedActivationFunction() if options else 0)


for _name, _op in (("ADD", "add"), ("DIV", "div"), ("MUL", "mul"), ("SUB", "sub")):
    _define_arithmetic(_name, _op)


def _window(x: Tensor, kernel: tuple[int, int], options: Any) -> emit_nn.Window:
    dilation = (1, 1)
    if hasattr(options, "DilationHFactor"):
        dilation = (options.DilationHFactor(), options.DilationWFactor())
    stride = (options.StrideH(), options.StrideW())
    padding = ("SAME", "VALID")[options.Padding()]
    return window_of((x.shape[1], x.shape[2]), kernel, stride, dilation=dilation, padding=padding)


def _convolved(
    ctx: LiteContext, options: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, groups: int
) -> Tensor:
    """Convolve NHWC by a weight seen as (O, I, KH, KW)."""
    window = _window(x, (kernel.shape[2], kernel.shape[3]), options)
    y = emit_nn.conv2d(
        ctx.g, permute(x, NCHW_OF_NHWC), kernel, bias=bias, window=window, groups=groups
    )
    return activated(ctx, permute(y, NHWC_OF_NCHW), options.FusedActivationFunction())


@lite_op("CONV_2D", wishes={1: OHWI}, bias=2)
def conv2d(
    ctx: LiteContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Convolve by (O, KH, KW, I)."""
    kernel = permute(weight, (0, 3, 1, 2))
    return _convolved(
        ctx, options, x, kernel=kernel, bias=bias, groups=x.shape[3] // weight.shape[3]
    )


@lite_op("DEPTHWISE_CONV_2D", wishes={1: DEPTHWISE}, bias=2)
def depthwise_conv2d(
    ctx: LiteContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Convolve each channel with its own filters, (1, KH, KW, C M)."""
    return _convolved(
        ctx, options, x, kernel=permute(weight, (3, 0, 1, 2)), bias=bias, groups=x.shape[3]
    )


@lite_op("FULLY_CONNECTED", wishes={1: IN_OUT}, bias=2)
def fully_connected(
    ctx: LiteContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Map rows by (out, in); without KeepNumDims all leading dimensions are rows."""
    if not options.KeepNumDims() and x.rank != 2:
        x = RULES["Reshape"].apply(ctx, x, np.array([-1, weight.shape[1]]))
    y = emit_nn.linear(ctx.g, x, weight, bias)
    return activated(ctx, y, options.FusedActivationFunction())


def _define_pool(name: str, average: bool) -> None:
    @lite_op(name)
    def rule(ctx: LiteContext, options: Any, x: Tensor) -> Tensor:
        window = _window(x, (options.FilterHeight(), options.FilterWidth()), options)
        picture = permute(x, NCHW_OF_NHWC)
        if average:
            y = emit_nn.avg_pool2d(ctx.g, picture, window, count_padding=False)
        else:
            y = emit_nn.max_pool2d(ctx.g, picture, window)
        return activated(ctx, permute(y, NHWC_OF_NCHW), options.FusedActivationFunction())


_define_pool("AVERAGE_POOL_2D", average=True)
_define_pool("MAX_POOL_2D", average=False)


@lite_op("SQUEEZE")
def squeeze(ctx: LiteContext, options: Any, x: Tensor) -> Tensor:
    """Drop dimensions of size 1."""
    dims = options.SqueezeDimsAsNumpy() if options else 0
    named = [int(dim) for dim in dims] if isinstance(dims, np.ndarray) else []
    return RULES["Squeeze"].apply(ctx, x, squeeze_dims=named)


@lite_op("SOFTMAX")
def softmax(ctx: LiteContext, options: Any, x: Tensor) -> Tensor:
    """Softmax of beta x along the last dimension."""
    return RULES["Softmax"].apply(ctx, emit.weighted(ctx.g, x, options.Beta()))


@lite_op("GELU")
def gelu(ctx: LiteContext, options: Any, x: Tensor) -> Tensor:
    """x Φ(x), exact or by the tanh formula."""
    return emit_activation.gelu(ctx.g, x, "tanh" if options.Approximate() else "none")


@lite_op("TRANSPOSE_CONV", static=(0,), wishes={1: DEPTHWISE}, bias=3)
def transpose_conv(
    ctx: LiteContext,
    options: Any,
    sizes: np.ndarray,
    weight: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Transposed convolution by (O, KH, KW, I)."""
    stride, padding = (options.StrideH(), options.StrideW()), ("SAME", "VALID")[options.Padding()]
    y = _transposed(
        ctx, x, weight, bias=bias, size=integers(sizes)[1:3], stride=stride, padding=padding
    )
    activation = getattr(options, "FusedActivationFunction", lambda: 0)()
    return activated(ctx, y, activation)


@lite_op("CUSTOM Convolution2DTransposeBias", wishes={1: DEPTHWISE}, bias=2)
def transpose_conv_bias(
    ctx: LiteContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """MediaPipe's, before TFLite's own had a bias; its options are a struct of C."""
    padding, *stride = struct.unpack_from("<iii", options)
    named = {1: "SAME", 2: "VALID"}[padding]
    return _transposed(
        ctx, x, weight, bias=bias, size=ctx.results[0][1:3], stride=stride[::-1], padding=named
    )


def _transposed(
    ctx: LiteContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    size: Sequence[int],
    stride: Sequence[int],
    padding: str,
) -> Tensor:
    """Convolve transposed, to pictures of this size."""
    kernel = (weight.shape[1], weight.shape[2])
    window = window_of(tuple(size), kernel, tuple(stride), dilation=(1, 1), padding=padding)
    whole = plain(x.value) if x.layout == (0, 1, 2, 3) else x
    y = plain(
        ctx.g.conv2d_dx(
            stored(ctx.g, whole, (0, 1, 2, 3)),
            stored(ctx.g, weight, DEPTHWISE),
            input_shape=(x.shape[0], *size, weight.shape[0]),
            stride=window.stride,
            padding=window.padding,
            dilation=window.dilation,
        )
    )
    return y if bias is None else emit.elementwise(ctx.g, "add", y, bias)
