"""ATen operators of language and audio nets: row norms, embeddings, attention, 1-D and transposed
convolution, resizing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32
from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit import norm as emit_norm
from pockengine.frontends.emit.nn import NormParams, Unsupported, Window
from pockengine.frontends.layout import (
    HWIO,
    NHWC,
    Tensor,
    framework_order,
    permute,
    plain,
    reshape,
    stored,
)
from pockengine.frontends.torch.aten import elementwise
from pockengine.frontends.torch.aten.registry import AtenContext, aten
from pockengine.frontends.torch.aten.windows import as_pictures, batched, conv_window

STEPS = ("stride", "dilation")
"""Values that are 1 in a direction without a window; paddings are 0."""


@aten("layer_norm.default")
def layer_norm(
    ctx: AtenContext,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    cudnn_enable: bool,
) -> Tensor:
    """Normalize the last dimensions to mean 0 and variance 1; scale and shift each element."""
    return emit_norm.layer_norm(ctx.g, x, len(normalized_shape), scale=weight, shift=bias, eps=eps)


@aten("rms_norm.default")
def rms_norm(
    ctx: AtenContext,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    eps: float | None,
) -> Tensor:
    """Normalize the last dimensions to a mean square of 1; scale each element."""
    eps = float(np.finfo(np.float32).eps) if eps is None else eps
    return emit_norm.rms_norm(ctx.g, x, len(normalized_shape), scale=weight, eps=eps)


@aten("group_norm.default")
def group_norm(
    ctx: AtenContext,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each group of channels of (N, C, ...); scale and shift each channel."""
    return emit_norm.group_norm(ctx.g, x, num_groups, scale=weight, shift=bias, eps=eps)


@aten("instance_norm.default")
def instance_norm(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each channel of each sample of (N, C, ...), or all by the running statistics."""
    norm = NormParams(weight, bias, running_mean, var=running_var, eps=eps)
    if not use_input_stats:
        return emit_nn.batch_norm_frozen(ctx.g, x, norm)
    if running_mean is not None:
        return emit_nn.instance_norm_training(ctx.g, x, norm, momentum)
    return emit_norm.group_norm(ctx.g, x, x.shape[1], scale=weight, shift=bias, eps=eps)


@aten("embedding.default")
def embedding(
    ctx: AtenContext,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Tensor:
    """Read the rows of a table; the row `padding_idx` gets no gradient."""
    rows = index_select(ctx, weight, 0, indices)
    if not emit.trains(ctx.g, weight):
        return rows
    if scale_grad_by_freq:
        raise Unsupported(
            "a trainable embedding with scale_grad_by_freq; drop the option, or freeze the table"
        )
    if padding_idx < 0:
        return rows
    padding = emit.arithmetic(
        ctx.g, "eq", reshape(ctx.g, indices, (*indices.shape, 1)), padding_idx
    )
    return emit.elementwise(ctx.g, "where", padding, elementwise.detach(ctx, rows), rows)


@aten("index_select.default")
def index_select(ctx: AtenContext, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Gather x at indices of a dimension."""
    if not x.rank:
        x = reshape(ctx.g, x, (1,))
        return reshape(ctx.g, index_select(ctx, x, 0, reshape(ctx.g, index, (1,))), ())
    values = framework_order(ctx.g, x), framework_order(ctx.g, index)
    return plain(ctx.g.take(*values, axis=dim % x.rank))


@aten("gather.default")
def gather(ctx: AtenContext, x: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    """Gather x along a dimension at the positions in index. An x or index of rank 0 counts as a
    line of one element.
    """
    if not x.rank or not index.rank:
        line, places = (reshape(ctx.g, part, part.shape or (1,)) for part in (x, index))
        return reshape(
            ctx.g, gather(ctx, line, dim, index=places, sparse_grad=sparse_grad), ctx.shape
        )
    stop = list(index.shape)
    stop[dim] = x.shape[dim]
    cut = emit.slice_(ctx.g, x, start=(0,) * x.rank, stop=tuple(stop), step=(1,) * x.rank)
    values = framework_order(ctx.g, cut), framework_order(ctx.g, index)
    return plain(ctx.g.take_along(*values, axis=dim % x.rank))


@aten("scaled_dot_product_attention.default")
def attention(
    ctx: AtenContext,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """dropout(softmax(query keyᵀ scale + mask)) value, over batches and heads."""
    g = ctx.g
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated_heads(ctx, part, query.shape[-3]) for part in (key, value))
    dims = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = emit.weighted(g, emit.matmul(g, query, permute(key, dims)), factor)
    if is_causal:
        attn_mask = plain(g.constant(np.tri(query.shape[-2], key.shape[-2], dtype=np.bool_)))
    blind = None if attn_mask is None else _blind_rows(ctx, attn_mask)
    if attn_mask is not None and attn_mask.dtype is F32:
        if blind is not None:
            attn_mask = emit.choose(g, blind, 0.0, attn_mask)
        scores = emit.arithmetic(g, "add", scores, attn_mask)
    elif attn_mask is not None:
        if blind is not None:
            attn_mask = emit.elementwise(g, "logical_or", attn_mask, blind)
        hidden = emit.scalar(g, -math.inf, F32)
        scores = emit.elementwise(g, "where", attn_mask, scores, hidden)
    shares = emit.along_last(g, "softmax", scores, -1)
    y = emit.matmul(g, emit_activation.dropout(g, shares, dropout_p, train=True), value)
    return y if blind is None else emit.choose(g, blind, 0.0, y)


def _blind_rows(ctx: AtenContext, mask: Tensor) -> Tensor | None:
    """Return which queries see nothing, so that their result is zeros; None if each sees
    something."""
    known = ctx.g.graph.constants.get(mask.value)
    if known is not None:
        seen = known if mask.dtype is BOOL else known > -np.inf
        if seen.any(mask.layout.index(mask.rank - 1)).all():
            return None
    if mask.dtype is F32 and emit.trains(ctx.g, mask):
        return None  # a trained bias hides nothing
    most = emit.reduce(ctx.g, "reduce_max", mask, [-1], keepdims=True)
    if mask.dtype is BOOL:
        return emit.unary("logical_not")(ctx.g, most)
    return emit.arithmetic(ctx.g, "eq", most, -math.inf)


def _repeated_heads(ctx: AtenContext, x: Tensor, heads: int) -> Tensor:
    """Repeat (..., heads, length, size) for groups of query heads that share it."""
    *lead, own, length, size = x.shape
    wide = reshape(ctx.g, x, (*lead, own, 1, length, size))
    repeated = emit.broadcast(ctx.g, wide, (*lead, own, heads // own, length, size))
    return reshape(ctx.g, repeated, (*lead, heads, length, size))


@aten("conv1d.default", "conv1d.padding", weight=(2, 1, 0))
def conv1d(
    ctx: AtenContext, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, **sizes: Any
) -> Tensor:
    """Convolve (N, C, L): a picture of height 1."""
    outputs, inputs, size = weight.shape
    line = conv_window((size,), **sizes)
    window = Window((1, size), (1, *line.stride), (0, 0, *line.padding), (1, *line.dilation))
    kernel = reshape(ctx.g, weight, (outputs, inputs, 1, size))
    y = emit_nn.conv2d(ctx.g, as_pictures(ctx, x), kernel, bias=bias, window=window, groups=groups)
    return reshape(ctx.g, y, ctx.shape)


@aten("conv_transpose2d.input", weight=HWIO)
def conv_transpose2d(
    ctx: AtenContext,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """Undo the shape of a convolution: the input gradient of the one with this weight.

    Output padding restores what padding crops below and right, then adds zeros.
    """
    picture = batched(ctx, x, 2)
    channels, height, width = ctx.shape[-3:]
    cut = [max(size - more, 0) for size, more in zip(padding, output_padding, strict=True)]
    added = [max(more - size, 0) for size, more in zip(padding, output_padding, strict=True)]
    y = ctx.g.conv2d_dx(
        stored(ctx.g, picture, NHWC),
        stored(ctx.g, weight, HWIO),
        input_shape=(picture.shape[0], height - added[0], width - added[1], channels),
        stride=tuple(stride),
        padding=(padding[0], cut[0], padding[1], cut[1]),
        dilation=tuple(dilation),
        groups=groups,
    )
    if any(added):
        y = ctx.g.pad(y, low=(0, 0, 0, 0), high=(0, *added, 0), value=0.0)
    y = y if bias is None else ctx.g.add(y, framework_order(ctx.g, bias))
    return reshape(ctx.g, Tensor(y, NHWC), ctx.shape)


@aten("conv_transpose1d.default")
def conv_transpose1d(
    ctx: AtenContext, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, **sizes: Any
) -> Tensor:
    """Undo the shape of a convolution of (N, C, L), or (C, L): a picture of height 1."""
    inputs, outputs, size = weight.shape
    picture = as_pictures(ctx, x)
    kernel = reshape(ctx.g, weight, (inputs, outputs, 1, size))
    result = (picture.shape[0], ctx.shape[-2], 1, ctx.shape[-1])
    whole = {name: (int(name in STEPS), *numbers) for name, numbers in sizes.items()}
    inner = AtenContext(ctx.g, result, ctx.dtype)
    y = conv_transpose2d(inner, picture, kernel, bias, groups=groups, **whole)
    return reshape(ctx.g, y, ctx.shape)


@aten("flip.default")
def flip(ctx: AtenContext, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Reverse dimensions."""
    axes = tuple(sorted(x.axis(dim) for dim in dims)) if x.rank else ()
    return Tensor(ctx.g.reverse(x.value, axes=axes), x.layout) if axes else x
