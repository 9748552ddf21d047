"""TensorFlow operators that split pictures into patches or blocks, and that resample them."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, permute, reshape
from pockengine.frontends.tensorflow.ops.nn import window_of
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op


@tf_op("ExtractImagePatches")
def image_patches(
    ctx: TfContext,
    x: Tensor,
    *,
    ksizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> Tensor:
    """Concatenate the pixels of each window, as channels of one pixel."""
    return _patches(ctx, x, ksizes[1:-1], strides=strides[1:-1], rates=rates[1:-1], padding=padding)


@tf_op("ExtractVolumePatches")
def volume_patches(
    ctx: TfContext, x: Tensor, *, ksizes: Sequence[int], strides: Sequence[int], padding: str
) -> Tensor:
    """Concatenate the elements of each window of a volume, as channels of one element."""
    return _patches(ctx, x, ksizes[1:-1], strides=strides[1:-1], rates=(1, 1, 1), padding=padding)


def _patches(
    ctx: TfContext,
    x: Tensor,
    sizes: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
) -> Tensor:
    g, spatial = ctx.g, range(1, x.rank - 1)
    window = window_of(
        x.shape[1:-1], tuple(sizes), tuple(strides), dilation=tuple(rates), padding=padding
    )
    sides = window.padding
    x = emit.pad(g, x, (0, *sides[::2], 0), (0, *sides[1::2], 0), value=0.0)
    counts = [
        (x.shape[dim] - rate * (size - 1) - 1) // step + 1
        for dim, size, step, rate in zip(spatial, sizes, strides, rates, strict=True)
    ]
    parts = []
    for tap in np.ndindex(*sizes):
        part = x
        for dim, place, rate, step, count in zip(spatial, tap, rates, strides, counts, strict=True):
            first = place * rate
            part = emit.slice_dim(
                g, part, dim, start=first, stop=first + (count - 1) * step + 1, step=step
            )
        parts.append(part)
    return emit.concat(g, parts, x.rank - 1)


@tf_op("SpaceToDepth")
def space_to_depth(
    ctx: TfContext, x: Tensor, *, block_size: int, data_format: str = "NHWC"
) -> Tensor:
    """Concatenate blocks of pixels, as channels."""
    if data_format != "NHWC":
        raise Unsupported("SpaceToDepth of NCHW; use channels_last")
    n, height, width, channels = x.shape
    rows, columns = height // block_size, width // block_size
    blocks = reshape(ctx.g, x, (n, rows, block_size, columns, block_size, channels))
    moved = permute(blocks, (0, 1, 3, 2, 4, 5))
    return reshape(ctx.g, moved, (n, rows, columns, channels * block_size**2))


@tf_op("ResizeBicubic", static=(1,))
def resize_bicubic(
    ctx: TfContext,
    x: Tensor,
    sizes: np.ndarray,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
) -> Tensor:
    """Resize the rows and columns of NHWC pictures, each by a constant matrix."""
    for dim, new in zip((1, 2), integers(sizes), strict=True):
        old = x.shape[dim]
        weights = tf.raw_ops.ResizeBicubic(
            images=_unit(old),
            size=[new, old],
            align_corners=align_corners,
            half_pixel_centers=half_pixel_centers,
        )
        x = _resampled(ctx, x, dim, weights)
    return x


@tf_op("ScaleAndTranslate", static=(1, 2, 3))
def scale_and_translate(
    ctx: TfContext,
    x: Tensor,
    sizes: np.ndarray,
    scale: np.ndarray,
    translation: np.ndarray,
    *,
    kernel_type: str = "lanczos3",
    antialias: bool = True,
) -> Tensor:
    """Resample the rows and columns of NHWC pictures, each by a constant matrix."""
    moves = zip((1, 2), integers(sizes), np.ravel(scale), np.ravel(translation), strict=True)
    for dim, new, factor, offset in moves:
        old = x.shape[dim]
        weights = tf.raw_ops.ScaleAndTranslate(
            images=_unit(old),
            size=[new, old],
            scale=[factor, 1.0],
            translation=[offset, 0.0],
            kernel_type=kernel_type,
            antialias=antialias,
        )
        x = _resampled(ctx, x, dim, weights)
    return x


def _unit(size: int) -> tf.Tensor:
    """Return a picture whose columns are those of a unit matrix."""
    return tf.eye(size)[None, :, :, None]


def _resampled(ctx: TfContext, x: Tensor, dim: int, weights: tf.Tensor) -> Tensor:
    """Multiply a dimension by the image of a unit matrix: (1, new, old, 1)."""
    return emit_nn.along_dim(ctx.g, x, dim, np.ascontiguousarray(weights.numpy()[0, :, :, 0].T))
