"""TensorFlow operators of volumes: convolution and pooling of (N, D, H, W, C)."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends.emit import volume as emit_volume
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.layout import Tensor, permute
from pockengine.frontends.tensorflow.ops.nn import window_of
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op

NCDHW_OF_NDHWC, NDHWC_OF_NCDHW = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)
OIDHW_OF_DHWIO = (4, 3, 0, 1, 2)


def _channels_first(x: Tensor, data_format: str) -> Tensor:
    if data_format != "NDHWC":
        raise Unsupported(f"volumes as {data_format}; use channels_last")
    return permute(x, NCDHW_OF_NDHWC)


def _window(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padding: str,
) -> Window:
    """Return a kernel's window over a volume, from sizes of all five dimensions."""
    around = [strides[0], strides[4], dilations[0], dilations[4]]
    if any(step != 1 for step in around):
        raise Unsupported("windows that move along the batch or the channels")
    steps, gaps = tuple(strides[1:4]), tuple(dilations[1:4])
    return window_of(tuple(size), tuple(kernel), steps, dilation=gaps, padding=padding)


@tf_op("Conv3D")
def conv3d(
    ctx: TfContext,
    x: Tensor,
    weight: Tensor,
    *,
    strides: list[int],
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> Tensor:
    """Convolve by (KD, KH, KW, C / groups, O)."""
    volume, kernel = _channels_first(x, data_format), permute(weight, OIDHW_OF_DHWIO)
    window = _window(
        volume.shape[2:], kernel.shape[2:], strides, dilations=dilations, padding=padding
    )
    groups = volume.shape[1] // kernel.shape[1]
    y = emit_volume.conv3d(ctx.g, volume, kernel, bias=None, window=window, groups=groups)
    return permute(y, NDHWC_OF_NCDHW)


@tf_op("Conv3DBackpropInputV2", static=(0,))
def conv3d_transpose(
    ctx: TfContext,
    sizes: np.ndarray,
    weight: Tensor,
    x: Tensor,
    *,
    strides: list[int],
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> Tensor:
    """Transposed convolution: the gradient of a convolution with result x, with respect to its
    input."""
    volume, kernel = _channels_first(x, data_format), permute(weight, OIDHW_OF_DHWIO)
    size = tuple(integers(sizes))[1:4]
    window = _window(size, kernel.shape[2:], strides, dilations=dilations, padding=padding)
    y = emit_volume.conv_transpose3d(
        ctx.g, volume, kernel, bias=None, window=window, groups=1, size=size
    )
    return permute(y, NDHWC_OF_NCDHW)


def _define_pool(name: str, pool: Callable[[Builder, Tensor, Window], Tensor]) -> None:
    @tf_op(name)
    def pooled(
        ctx: TfContext,
        x: Tensor,
        *,
        ksize: list[int],
        strides: list[int],
        padding: str,
        data_format: str = "NDHWC",
    ) -> Tensor:
        """Take each window's maximum, or its mean without what is padded."""
        volume = _channels_first(x, data_format)
        window = _window(volume.shape[2:], ksize[1:4], strides, dilations=(1,) * 5, padding=padding)
        return permute(pool(ctx.g, volume, window), NDHWC_OF_NCDHW)


_define_pool("MaxPool3D", emit_volume.max_pool3d)
_define_pool("AvgPool3D", partial(emit_volume.avg_pool3d, count_padding=False))
