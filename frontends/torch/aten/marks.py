"""Rows that a mask marks: the internal operator of `frontends/torch/marks.py`."""

import math

import numpy as np

from pockengine.compiler.ir import F32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("pockengine.marked.default")
def marked(ctx: AtenContext, x: Tensor, mask: Tensor, number: int) -> Tensor:
    """Take the row of each example at its mark of this number; a negative one counts from the end.

    All is NaN where examples have unequal numbers of marks, or too few.
    """
    g, rows = ctx.g, mask.shape[0]
    if x.dtype is not F32:
        raise Unsupported(f"picking marked rows of {x.dtype.value}; convert to float32 first")
    if mask.size > emit.MOST_COUNTED:
        raise Unsupported(f"a mask of {mask.size} elements; {emit.MOST_COUNTED} are the most")
    marks = emit.cast(g, reshape(g, mask, (rows, mask.size // rows)), F32)
    count = emit.reduce(g, "reduce_sum", marks, [1], keepdims=True)
    rank = plain(g.cumsum(framework_order(g, marks), axis=1))
    ordinal = emit.arithmetic(g, "add", count, number + 1.0) if number < 0 else number + 1.0
    hit = emit.arithmetic(
        g, "mul", marks, emit.cast(g, emit.arithmetic(g, "eq", rank, ordinal), F32)
    )
    places = plain(g.constant(np.arange(mask.size, dtype=np.float32).reshape(marks.shape)))
    place = emit.reduce(
        g, "reduce_sum", emit.arithmetic(g, "mul", hit, places), dims=[1], keepdims=False
    )
    lines = reshape(g, x, (mask.size, math.prod(x.shape[mask.rank :])))
    index = framework_order(g, emit.cast(g, place, I64))
    picked = plain(g.take(framework_order(g, lines), index, axis=0))
    return reshape(g, _where_equal(ctx, count, number, picked), ctx.shape)


def _where_equal(ctx: AtenContext, count: Tensor, number: int, picked: Tensor) -> Tensor:
    """Return NaN everywhere unless each example has as many marks as the first, including the one
    that is read."""
    g = ctx.g
    ends = [
        emit.reduce(g, f"reduce_{end}", count, dims=[0, 1], keepdims=True) for end in ("min", "max")
    ]
    least = -number if number < 0 else number + 1
    equal = emit.arithmetic(g, "eq", *ends)
    enough = emit.arithmetic(g, "ge", ends[0], float(least))
    sound = emit.arithmetic(g, "logical_and", equal, enough)
    return emit.elementwise(g, "where", sound, picked, emit.scalar(g, math.nan, F32))
