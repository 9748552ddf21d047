"""ONNX operators that read at places which are data: regions of pictures, moved windows; Col2Im."""

import math
from collections.abc import Sequence

import numpy as np

from pockengine.compiler.ir import F32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit.index import write_lines
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.sampling import linear_taps, read
from pockengine.frontends.layout import (
    NHWC,
    Tensor,
    permute,
    plain,
    reshape,
    stored,
)
from pockengine.frontends.onnx.ops.registry import OnnxContext, integers, onnx_op


@onnx_op("RoiAlign")
def roi_align(
    ctx: OnnxContext,
    x: Tensor,
    rois: Tensor,
    batch: Tensor,
    *,
    coordinate_transformation_mode: str = "",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Average points within each cell of regions (x1, y1, x2, y2); no gradient flows to those."""
    if mode != "avg":
        raise Unsupported("the maximum of points that are read; use mode='avg'")
    if sampling_ratio <= 0:
        raise Unsupported(
            "a number of points that depends on the size of a region; export with sampling_ratio=2"
        )
    g, (_, channels, *sizes), count = ctx.g, x.shape, rois.shape[0]
    half = coordinate_transformation_mode or ("half_pixel" if ctx.opset >= 16 else "")
    corners = emit.arithmetic(g, "mul", emit.unary("stop_gradient")(g, rois), spatial_scale)
    cells, taps = (output_height, output_width), []
    for dim in (1, 0):
        place = _points(
            ctx, corners, dim, count=cells[dim] * sampling_ratio, half=half == "half_pixel"
        )
        wide = (count, 1, place.shape[1]) if dim else (count, place.shape[1], 1)
        taps.append(_bordered(ctx, reshape(g, place, wide), sizes[dim]))
    rows = g.reshape(stored(g, x, NHWC), shape=(math.prod((x.shape[0], *sizes)), channels))
    start = emit.arithmetic(g, "mul", emit.cast(g, batch, I64), math.prod(sizes))
    points = read(
        g, rows, reshape(g, start, (count, 1, 1)), taps=taps, sizes=sizes[::-1], zeros=False
    )
    grouped = [part for cell in cells for part in (cell, sampling_ratio)]
    lines = reshape(g, points, (count, *grouped, channels))
    return Tensor(emit.reduce(g, "reduce_mean", lines, dims=[2, 4], keepdims=False).value, NHWC)


def _points(ctx: OnnxContext, corners: Tensor, dim: int, count: int, half: bool) -> Tensor:
    """Return evenly spaced places within regions along a dimension, the height's first."""
    g = ctx.g
    low, high = (emit.slice_dim(g, corners, 1, start=i, stop=i + 1) for i in (1 - dim, 3 - dim))
    length = emit.arithmetic(g, "sub", high, low)
    if half:
        low = emit.arithmetic(g, "sub", low, 0.5)
    else:
        length = emit.arithmetic(g, "maximum", length, 1.0)
    shares = ((np.arange(count) + 0.5) / count).astype(np.float32)
    steps = emit.arithmetic(g, "mul", length, plain(g.constant(shares)))
    return emit.arithmetic(g, "add", low, steps)


def _bordered(ctx: OnnxContext, place: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Return the neighbors of places along one dimension; those far outside have weight 0."""
    g = ctx.g
    after = emit.arithmetic(g, "ge", place, -1.0)
    before = emit.arithmetic(g, "le", place, float(size))
    near = emit.cast(g, emit.arithmetic(g, "logical_and", after, before), F32)
    inside = Tensor(g.clamp(place.value, min=0.0, max=float(size - 1)), place.layout)
    return [(low, emit.arithmetic(g, "mul", part, near)) for low, part in linear_taps(g, inside)]


@onnx_op("DeformConv")
def deform_conv(
    ctx: OnnxContext,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolve pictures with windows whose elements are each moved by their own offset."""
    if x.rank != 4:
        raise Unsupported(f"moved windows over {list(x.shape)}; use pictures")
    g, (batch, channels, *_), made = ctx.g, x.shape, weight.shape[0]
    kernel, out = weight.shape[2:], offset.shape[2:]
    each, points, share = math.prod(kernel), math.prod(out), channels // offset_group
    corners = _corners(
        kernel, out, strides or [1, 1], dilations=dilations or [1, 1], pads=pads or [0] * 4
    )
    taken = _moved(ctx, x, reshape(g, offset, (batch * offset_group, each, 2, points)), corners)
    if mask is not None:
        shares = reshape(g, mask, (batch * offset_group, each, points, 1))
        taken = emit.arithmetic(g, "mul", taken, shares)
    parts = reshape(g, taken, (batch, offset_group, each, points, share))
    parts = permute(parts, (1, 4, 2, 0, 3))  # channels, element of the window, picture, place
    lines = reshape(g, parts, (group, channels // group * each, batch * points))
    factors = reshape(g, weight, (group, made // group, channels // group * each))
    y = reshape(g, emit.matmul(g, factors, lines), (made, batch, *out))
    y = permute(y, (1, 0, 2, 3))
    return y if bias is None else emit.arithmetic(g, "add", y, reshape(g, bias, (made, 1, 1)))


def _moved(ctx: OnnxContext, x: Tensor, offset: Tensor, corners: Sequence[np.ndarray]) -> Tensor:
    """Read x at corners that are moved by (groups, elements, 2, places), the height's move first.

    Each group of offsets reads as many channels of its picture as any other.
    """
    g, (batch, channels, *sizes) = ctx.g, x.shape
    groups, each, _, points = offset.shape
    taps = []
    for dim in (1, 0):
        own = emit.slice_dim(g, offset, 2, start=dim, stop=dim + 1)
        corner = plain(g.constant(corners[dim]))
        place = emit.arithmetic(g, "add", reshape(g, own, (groups, each, points)), corner)
        taps.append(linear_taps(g, place))
    share = batch * channels // groups
    value = stored(g, reshape(g, x, (groups, share, *sizes)), NHWC)
    rows = g.reshape(value, shape=(groups * math.prod(sizes), share))
    first = np.arange(groups, dtype=np.int64) * math.prod(sizes)
    start = plain(g.constant(first[:, None, None]))
    return read(g, rows, start, taps=taps, sizes=sizes[::-1], zeros=True)


def _corners(
    kernel: Sequence[int],
    out: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> list[np.ndarray]:
    """Return the position of each element of a window without offsets, along both dimensions."""
    elements, places = np.indices(kernel).reshape(2, -1), np.indices(out).reshape(2, -1)
    return [
        (elements[dim][:, None] * dilations[dim] + places[dim] * strides[dim] - pads[dim]).astype(
            np.float32
        )
        for dim in (0, 1)
    ]


@onnx_op("Col2Im", static=(1, 2))
def col2im(
    ctx: OnnxContext,
    x: Tensor,
    image: np.ndarray,
    block: np.ndarray,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Add blocks (N, C * elements, blocks) at their positions in a picture of any dimensions."""
    g, sizes, kernel = ctx.g, integers(image) or [], integers(block) or []
    rank = len(sizes)
    steps, gaps = strides or [1] * rank, dilations or [1] * rank
    before, after = (pads or [0] * 2 * rank)[:rank], (pads or [0] * 2 * rank)[rank:]
    whole = [a + size + b for a, size, b in zip(before, sizes, after, strict=True)]
    places = np.zeros((), np.int64)
    for dim, size in enumerate(whole):
        count = (size - gaps[dim] * (kernel[dim] - 1) - 1) // steps[dim] + 1
        line = np.arange(kernel[dim])[:, None] * gaps[dim] + np.arange(count) * steps[dim]
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = kernel[dim], count
        places = places * size + line.reshape(shape)
    channels = x.shape[1] // math.prod(kernel)
    if places.size != x.shape[2] * math.prod(kernel):
        raise Unsupported(f"{x.shape[2]} blocks for {places.size // math.prod(kernel)} places")
    lines = reshape(g, x, (x.shape[0] * channels, places.size))
    empty = plain(g.constant(np.zeros((lines.shape[0], math.prod(whole)), np.float32)))
    index = plain(g.constant(places.ravel()))
    total = write_lines(g, empty, 1, index=index, lines=lines, accumulate=True)
    y = reshape(g, total, (x.shape[0], channels, *whole))
    start = (0, 0, *before)
    stop = (*y.shape[:2], *(a + size for a, size in zip(before, sizes, strict=True)))
    return emit.slice_(g, y, start=start, stop=stop, step=(1,) * y.rank)
