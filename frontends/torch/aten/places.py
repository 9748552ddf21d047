"""ATen operators that only move elements to constant positions, as gathers at constant indices.

PyTorch computes the indices at import: the operator runs on the numbers 1, 2, 3, ..., and 0 marks
an element filled with zero.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.aten.registry import AtenContext, aten

MOVES = (
    "as_strided.default",
    "diag_embed.default",
    "diagonal.default",
    "im2col.default",
    "unfold.default",
)


def _define_move(overload: str) -> None:
    name, variant = overload.split(".")
    operator = getattr(getattr(torch.ops.aten, name), variant)

    @aten(overload)
    def rule(ctx: AtenContext, x: Tensor, **arguments: Any) -> Tensor:
        numbers = torch.arange(1, x.size + 1, dtype=torch.float64).reshape(x.shape)
        try:
            moved = operator(numbers, **arguments)
        except RuntimeError as error:  # as_strided may look at memory of which x is a part
            raise Unsupported("elements outside of its tensor; take them of the whole") from error
        return _picked(ctx, x, moved.numpy().astype(np.int64))


for _overload in MOVES:
    _define_move(_overload)


def _picked(ctx: AtenContext, x: Tensor, numbers: np.ndarray) -> Tensor:
    """Return the elements of `x` by number, counted from 1; 0 gives zero."""
    flat = ctx.g.reshape(framework_order(ctx.g, x), shape=(x.size,))
    if numbers.all():
        return plain(ctx.g.take(flat, ctx.g.constant(numbers - 1), axis=0))
    if not x.dtype.is_float:
        raise Unsupported(f"filling {x.dtype.value} with zeros; convert to float32 first")
    padded = ctx.g.pad(flat, low=(1,), high=(0,), value=0.0)
    return plain(ctx.g.take(padded, ctx.g.constant(numbers), axis=0))


def take(ctx: AtenContext, x: Tensor, dim: int, index: np.ndarray) -> Tensor:
    """Pick slices of one dimension."""
    return Tensor(ctx.g.take(x.value, ctx.g.constant(index), axis=x.axis(dim)), x.layout)


def pad_by_copies(ctx: AtenContext, x: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """Pad by x's own elements: "reflect", "replicate" or "circular", from the last dimension on."""
    for index in range(len(pad) // 2):
        dim = x.rank - 1 - index
        line = torch.arange(x.shape[dim], dtype=torch.float64).reshape(1, 1, -1)
        sides = list(pad[2 * index : 2 * index + 2])
        if any(sides):
            places = torch.nn.functional.pad(line, sides, mode)
            x = take(ctx, x, dim, places.flatten().numpy().astype(np.int64))
    return x
