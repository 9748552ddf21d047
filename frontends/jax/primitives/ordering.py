"""Primitives that sort, and cumulative ones."""

from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit import bits
from pockengine.frontends.emit.cumulative import Combine, associative_scan, log_add
from pockengine.frontends.emit.order import best, order_of
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import Tensor, framework_order, permute, plain


@primitive("sort")
def sort(
    ctx: JaxContext, *operands: Tensor, dimension: int, num_keys: int, **_: Any
) -> list[Tensor]:
    """Sort a dimension of all operands by the first ones, the first key being the primary one."""
    g, rank = ctx.g, operands[0].rank
    dims = [dim for dim in range(rank) if dim != dimension] + [dimension]
    lines = [permute(x, dims) for x in operands]
    order: Tensor | None = None
    for key in reversed(lines[:num_keys]):
        numbers = emit.cast(g, key, I32) if key.dtype is BOOL else key
        again = order_of(g, numbers if order is None else _read(g, numbers, order), False)
        order = again if order is None else _read(g, order, again)
    assert order is not None  # there is one key at least
    back = [int(dim) for dim in np.argsort(dims)]
    return [permute(_read(g, line, order), back) for line in lines]


def _read(g: Builder, x: Tensor, places: Tensor) -> Tensor:
    """Gather x at indices of its last dimension."""
    values = framework_order(g, x), framework_order(g, places)
    return plain(g.take_along(*values, axis=x.rank - 1))


@primitive("top_k")
def top_k(ctx: JaxContext, x: Tensor, *, k: int, axis: int = -1, **_: Any) -> list[Tensor]:
    """Take the k largest of a dimension in descending order, and their indices.

    A NaN is above all numbers, or below them by its sign, and 0 is above -0.
    """
    key = bits.in_total_order(ctx.g, x) if x.dtype is F32 else x
    places = best(ctx.g, key, axis, count=k, descending=True)[1]
    operands = framework_order(ctx.g, x), framework_order(ctx.g, places)
    taken = plain(ctx.g.emit("take_along", *operands, axis=axis % x.rank).result)
    return [taken, emit.cast(ctx.g, places, I32)]


@primitive("approx_top_k")
def approx_top_k(
    ctx: JaxContext, x: Tensor, *, k: int, reduction_dimension: int, is_max_k: bool, **_: Any
) -> list[Tensor]:
    """Take the k largest or smallest of a dimension: all of them, where JAX may miss some."""
    values, places = best(ctx.g, x, reduction_dimension, count=k, descending=is_max_k)
    return [values, emit.cast(ctx.g, places, I32)]


def _combined(op: str) -> Combine:
    return lambda g, a, b: emit.elementwise(g, op, a, b)


SCANS: dict[str, Combine] = {
    "cumlogsumexp": log_add,
    "cummax": _combined("maximum"),
    "cummin": _combined("minimum"),
    "cumprod": _combined("mul"),
}
"""Cumulative primitives."""


def _define_scan(name: str, combine: Combine) -> None:
    @primitive(name)
    def rule(ctx: JaxContext, x: Tensor, *, axis: int, reverse: bool, **_: Any) -> Tensor:
        g, turned = ctx.g, (x.axis(axis),)
        if reverse:
            x = Tensor(g.reverse(x.value, axes=turned), x.layout)
        y = associative_scan(g, x, axis, combine)
        return Tensor(g.reverse(y.value, axes=(y.axis(axis),)), y.layout) if reverse else y


for _name, _combine in SCANS.items():
    _define_scan(_name, _combine)
