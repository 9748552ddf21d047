"""ATen operators that reduce bags of embeddings, stored one after another in one list.

Sums and means add each row to its bag. A maximum pads all bags to the longest possible one: to the
whole list if the offsets are data.
"""

import math

import numpy as np

from pockengine.compiler.ir import F32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, Missing, aten

SUM, MEAN, MAX = range(3)
"""ATen's codes of the reduction of a bag's rows."""

OTHERS = Missing("an embedding bag's sizes or places; use its rows alone")


@aten("embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag.default")
def embedding_bag(
    ctx: AtenContext,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None = None,
) -> list[Tensor | Missing]:
    """Sum, average or take the maximum of the rows of a table that each bag names."""
    g = ctx.g
    if scale_grad_by_freq and emit.trains(g, weight):
        raise Unsupported("a trainable embedding bag with scale_grad_by_freq; drop the option")
    if include_last_offset:
        offsets = emit.slice_dim(g, offsets, 0, start=0, stop=offsets.shape[0] - 1)
    mask = None
    if padding_idx is not None and padding_idx >= 0:
        mask = emit.arithmetic(g, "ne", indices, padding_idx)
    if mode == MAX:
        return [_largest(ctx, weight, indices, offsets=offsets, mask=mask), OTHERS, OTHERS, OTHERS]
    rows = plain(g.take(framework_order(g, weight), framework_order(g, indices), axis=0))
    shares = per_sample_weights
    if mask is not None:
        shares = emit.choose(g, mask, 1.0 if shares is None else shares, 0.0)
    if shares is not None:
        rows = emit.arithmetic(g, "mul", rows, reshape(g, shares, (*shares.shape, 1)))
    bags = _bags(ctx, indices.shape[0], offsets)
    total = _added(ctx, rows, bags, offsets.shape[0])
    if mode == MEAN:
        counted = emit.scalar(g, 1.0, F32) if mask is None else emit.cast(g, mask, F32)
        counted = emit.broadcast(g, counted, indices.shape)
        count = _added(ctx, reshape(g, counted, (*indices.shape, 1)), bags, offsets.shape[0])
        total = emit.elementwise(g, "div", total, emit.arithmetic(g, "maximum", count, 1.0))
    return [total, OTHERS, OTHERS, OTHERS]


def _bags(ctx: AtenContext, count: int, offsets: Tensor) -> Tensor:
    """Return which bag each place of the list is in: how many bags after the first have begun."""
    g = ctx.g
    places = plain(g.constant(np.arange(count, dtype=np.int64)[:, None]))
    if offsets.size == 1:
        return plain(g.constant(np.zeros(count, np.int64)))
    later = emit.slice_dim(g, offsets, 0, start=1, stop=offsets.size)
    begun = emit.arithmetic(g, "ge", places, reshape(g, later, (1, later.shape[0])))
    return emit.cast(
        g, emit.reduce(g, "reduce_sum", emit.cast(g, begun, F32), dims=[1], keepdims=False), I64
    )


def _added(ctx: AtenContext, rows: Tensor, bags: Tensor, count: int) -> Tensor:
    values = framework_order(ctx.g, rows), framework_order(ctx.g, bags)
    return plain(ctx.g.take_dx(*values, axis=0, input_shape=(count, *rows.shape[1:])))


def _largest(
    ctx: AtenContext, weight: Tensor, indices: Tensor, offsets: Tensor, mask: Tensor | None
) -> Tensor:
    """Take each bag's maximum, of which the first one gets the gradient; zeros without rows."""
    g, count = ctx.g, indices.shape[0]
    known = g.graph.constants.get(offsets.value)
    ends = [plain(g.constant(np.array([count])))]
    if offsets.size > 1:
        ends.insert(0, emit.slice_dim(g, offsets, 0, start=1, stop=offsets.size))
    longest = count
    if known is not None:
        longest = max(int(np.diff([*known, count]).max()), 1)
    first, end = (
        reshape(g, part, (part.shape[0], 1)) for part in (offsets, emit.concat(g, ends, 0))
    )
    steps = plain(g.constant(np.arange(longest, dtype=np.int64)[None]))
    places = emit.arithmetic(g, "add", first, steps)
    inside = emit.arithmetic(g, "lt", places, end)
    places = emit.arithmetic(g, "minimum", places, count - 1)
    picked = framework_order(g, places)
    if mask is not None:
        seen = plain(g.take(framework_order(g, mask), picked, axis=0))
        inside = emit.elementwise(g, "logical_and", inside, seen)
    rows = g.take(
        framework_order(g, weight), g.take(framework_order(g, indices), picked, axis=0), axis=0
    )
    inside = reshape(g, inside, (*inside.shape, 1))
    best = emit_nn.first_maximum(g, emit.choose(g, inside, plain(rows), -math.inf), 1)
    none = emit.arithmetic(g, "eq", best, -math.inf)
    return emit.squeeze(g, emit.choose(g, none, 0.0, best), [1])
