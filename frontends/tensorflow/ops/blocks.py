"""Space to batch and back, with which TensorFlow expresses dilated convolutions.

A tensor that is spread over the batch remembers what it was, so that a convolution of it becomes
one dilated convolution of what it was; what was built for the detour is dead then.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pockengine.compiler.ir import Shape
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, permute, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op


@dataclass(eq=False)
class Spread(Tensor):
    """A tensor whose pixels are distributed over the batch in blocks.

    `whole` is the padded tensor before that.
    """

    whole: Tensor | None = None
    block: tuple[int, ...] = field(default=())


@tf_op("SpaceToBatchND", static=(1, 2))
def space_to_batch(ctx: TfContext, x: Tensor, block: np.ndarray, pads: np.ndarray) -> Tensor:
    """Pad, and move every block-th element of the first dimensions into the batch."""
    sizes = integers(block)
    others = x.rank - 1 - len(sizes)
    low, high = ((0, *integers(side), *[0] * others) for side in np.asarray(pads).T)
    whole = emit.pad(ctx.g, x, tuple(low), tuple(high), value=0.0)
    count, shape = len(sizes), whole.shape
    parts = [part for i, size in enumerate(sizes) for part in (shape[1 + i] // size, size)]
    split = reshape(ctx.g, whole, (shape[0], *parts, *shape[1 + count :]))
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
    moved = permute(split, [*order, *range(2 * count + 1, split.rank)])
    small = tuple(size // step for size, step in zip(shape[1:], sizes, strict=False))
    target: Shape = (shape[0] * math.prod(sizes), *small, *shape[1 + count :])
    y = reshape(ctx.g, moved, target)
    return Spread(y.value, y.layout, whole=whole, block=tuple(sizes))


@tf_op("BatchToSpaceND", static=(1, 2))
def batch_to_space(ctx: TfContext, x: Tensor, block: np.ndarray, crops: np.ndarray) -> Tensor:
    """Reassemble the parts of the batch, and crop."""
    sizes = tuple(integers(block))
    if isinstance(x, Spread) and x.whole is not None and x.block == sizes:
        return _crop(ctx, x.whole, crops)
    count, shape = len(sizes), x.shape
    batch = shape[0] // math.prod(sizes)
    split = reshape(ctx.g, x, (*sizes, batch, *shape[1:]))
    order = [count, *(dim for i in range(count) for dim in (count + 1 + i, i))]
    moved = permute(split, [*order, *range(2 * count + 1, split.rank)])
    large = tuple(size * step for size, step in zip(shape[1:], sizes, strict=False))
    return _crop(ctx, reshape(ctx.g, moved, (batch, *large, *shape[1 + count :])), crops)


def _crop(ctx: TfContext, x: Tensor, crops: Any) -> Tensor:
    for dim, (low, high) in enumerate(np.asarray(crops).tolist(), start=1):
        x = emit.slice_dim(ctx.g, x, dim, start=low, stop=x.shape[dim] - high)
    return x
