"""Positions of true elements: their number depends on data, but the first one is a tensor."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I64, Builder
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, Truths, tf_op

VALUE_SHAPE = (
    "the shape of its result depends on the values in a tensor; keep a fixed shape, for example by "
    "tf.where(condition, a, b)"
)
READING = ("Cast", "Identity", "StridedSlice", "Unpack")
"""Operators that may process positions before one is read."""


def check_truths(op: Any, values: Sequence[Any]) -> None:
    """Raise Unsupported for an operator that would need all places."""
    if op.type not in READING and any(isinstance(value, Truths) for value in values):
        raise Unsupported(VALUE_SHAPE)


@tf_op("Where")
def where(ctx: TfContext, x: Tensor) -> Truths:
    """Return the places that are true or not zero."""
    mask = x if x.dtype is BOOL else emit.arithmetic(ctx.g, "ne", x, 0)
    return Truths(mask, I64)


def columns(places: Truths, count: int, axis: int) -> list[Truths]:
    """Split places into their coordinates."""
    if places.dim is not None or axis % 2 != 1:
        raise Unsupported(VALUE_SHAPE)
    return [replace(places, dim=dim) for dim in range(count)]


def converted(places: Truths, numpy: Any) -> Truths:
    """Convert positions to another type."""
    return replace(places, dtype=known_dtype(numpy, f"places as {np.dtype(numpy).name}"))


def first_place(g: Builder, places: Truths, index: Sequence[Any]) -> Tensor | Truths:
    """Return the coordinates of the first place, one of them, or a column of all places.

    It is taken to exist, as TensorFlow's own index does.
    """
    first, *others = index
    dims = list(range(places.mask.rank)) if places.dim is None else [places.dim]
    if len(others) > 1 or (others and (places.dim is not None or others[0] not in dims)):
        raise Unsupported(VALUE_SHAPE)
    if others and first == slice(None, None, 1):
        return replace(places, dim=others[0])
    if first != 0:
        raise Unsupported(VALUE_SHAPE)
    found = [_first_coordinate(g, places, dim) for dim in others or dims]
    if others or places.dim is not None:
        return found[0]
    return emit.concat(g, [reshape(g, coordinate, (1,)) for coordinate in found], 0)


def _first_coordinate(g: Builder, places: Truths, dim: int) -> Tensor:
    shape = places.mask.shape
    flat = reshape(g, emit.cast(g, places.mask, F32), (places.mask.size,))
    place = plain(g.argmax(framework_order(g, flat), axis=0))
    behind = math.prod(shape[dim + 1 :])
    coordinate = emit.arithmetic(g, "quotient", place, behind) if behind > 1 else place
    if dim:
        coordinate = emit.arithmetic(g, "rem", coordinate, shape[dim])
    return emit.cast(g, coordinate, places.dtype)
