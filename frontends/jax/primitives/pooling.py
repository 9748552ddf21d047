"""Windows that take a maximum, a sum or a product.

Our pooling goes over two dimensions. A window over more goes over the last two first, then over
those before: the first of equal maxima in that order is the first of all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder, Shape, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import NHWC, Tensor, permute, reshape, stored

Stage = Callable[[Builder, Tensor, dict[str, Any], Shape], Tensor]
"""From x, a window over at most two dimensions and the result's shape to the result."""
MOST_TAPS = 512


@dataclass(frozen=True)
class _Pooling:
    """A window over two dimensions, and the order that makes x of rank 4 (N, C, H, W)."""

    window: Window
    order: tuple[int, int, int, int]

    def enter(self, g: Builder, x: Tensor) -> Value:
        """Return x, or a cotangent, as our pooling reads it."""
        return stored(g, permute(reshape(g, x, (1,) * (4 - x.rank) + x.shape), self.order), NHWC)

    def leave(self, g: Builder, value: Value, shape: Shape) -> Tensor:
        """Return our result as JAX has it."""
        back = [self.order.index(dim) for dim in range(4)]
        return reshape(g, permute(Tensor(value, NHWC), back), shape)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes that all our pooling ops have."""
        window = self.window
        return {"kernel": window.kernel, "stride": window.stride, "padding": window.padding}


def _pooling(x: Tensor, params: dict[str, Any]) -> _Pooling:
    """Find the two dimensions that a window covers; a lower rank is filled up with ones."""
    if x.dtype is not F32:
        raise Unsupported(f"windows over {x.dtype.value}; use float32")
    if any(gap != 1 for gap in params.get("base_dilation") or ()):
        raise Unsupported("pooling of a dilated input")
    none = (1, 1, (0, 0), 1)
    columns = zip(
        params["window_dimensions"],
        params["window_strides"],
        (tuple(map(int, side)) for side in params["padding"]),
        params.get("window_dilation") or (1,) * x.rank,
        strict=True,
    )
    windows = [none] * (4 - x.rank) + list(columns)
    moving = [dim for dim in range(4) if windows[dim] != none]
    if len(moving) > 2:
        raise Unsupported(f"windows over {len(moving)} dimensions; use one or two")
    spare = [dim for dim in (2, 1, 0, 3) if dim not in moving]  # the last one stays the channels
    over = sorted([*moving, *spare[: 2 - len(moving)]])
    rest = [dim for dim in range(4) if dim not in over]
    (kh, sh, (top, bottom), dh), (kw, sw, (left, right), dw) = (windows[dim] for dim in over)
    window = Window((kh, kw), (sh, sw), (top, bottom, left, right), (dh, dw))
    return _Pooling(window, (rest[0], rest[1], over[0], over[1]))


NAMES = ("window_dimensions", "window_strides", "padding", "window_dilation")
NONE = (1, 1, (0, 0), 1)
"""What a window says of a dimension that it does not move along."""


def _moving(x: Tensor, params: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Return what a window says of each dimension that it covers or moves along."""
    given = [params.get(name) or (1,) * x.rank for name in NAMES]
    whole = [
        (size, step, tuple(map(int, sides)), gap)
        for size, step, sides, gap in zip(*given, strict=True)
    ]
    return {dim: how for dim, how in enumerate(whole) if how != NONE}


def _in_stages(ctx: JaxContext, x: Tensor, params: dict[str, Any], pool: Stage) -> Tensor:
    """Pool two dimensions at a time, the last ones first."""
    moving = _moving(x, params)
    if x.rank <= 4 and len(moving) <= 2:
        return pool(ctx.g, x, params, ctx.shape)
    dims = sorted(moving)
    while dims:
        pair, dims = dims[-2:], dims[:-2]
        rest = [dim for dim in range(x.rank) if dim not in pair]
        order = [*rest, *pair]
        lines = permute(x, order)
        lead, area = lines.shape[: len(rest)], lines.shape[len(rest) :]
        columns = zip(*(moving[dim] for dim in pair), strict=True)
        own = {
            name: (NONE[at], *part)
            for at, (name, part) in enumerate(zip(NAMES, columns, strict=True))
        }
        reach = [_count(size, *moving[dim]) for size, dim in zip(area, pair, strict=True)]
        flat = reshape(ctx.g, lines, (math.prod(lead), *area))
        pooled = pool(ctx.g, flat, {**params, **own}, (math.prod(lead), *reach))
        back = [order.index(dim) for dim in range(x.rank)]
        x = permute(reshape(ctx.g, pooled, (*lead, *reach)), back)
    return x


def _count(size: int, kernel: int, step: int, sides: tuple[int, int], gap: int) -> int:
    """Return how many places a window has along a dimension."""
    return int((size + sum(sides) - gap * (kernel - 1) - 1) // step + 1)


def _max_stage(g: Builder, x: Tensor, params: dict[str, Any], shape: Shape) -> Tensor:
    pool = _pooling(x, params)
    value = g.max_pool2d(pool.enter(g, x), dilation=pool.window.dilation, **pool.attrs)
    return pool.leave(g, value, shape)


def _sum_stage(g: Builder, x: Tensor, params: dict[str, Any], shape: Shape) -> Tensor:
    """Add up windows: their average, times their size."""
    pool = _pooling(x, params)
    if pool.window.dilation != (1, 1):
        return _taps(g, x, params, 0.0, "add")
    value = g.avg_pool2d(pool.enter(g, x), count_include_pad=True, **pool.attrs)
    average = pool.leave(g, value, shape)
    return emit.arithmetic(g, "mul", average, float(math.prod(pool.window.kernel)))


@primitive("reduce_window_max")
def reduce_window_max(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the maximum of each window."""
    return _in_stages(ctx, x, params, _max_stage)


@primitive("reduce_window_min")
def reduce_window_min(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the minimum of each window."""
    negative = emit.unary("neg")
    return negative(ctx.g, reduce_window_max(ctx, negative(ctx.g, x), **params))


@primitive("reduce_window_sum")
def reduce_window_sum(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Add up each window."""
    return _in_stages(ctx, x, params, _sum_stage)


@primitive("reduce_window", static=(1,))
def reduce_window(ctx: JaxContext, x: Tensor, start: np.ndarray, **params: Any) -> Tensor:
    """Combine each window by a product, all that it may be beside the three above."""
    body = params["jaxpr"]
    names = [equation.primitive.name for equation in body.eqns]
    if names != ["mul"] or x.dtype is not F32:
        raise Unsupported(f"windows that combine by {names} of {x.dtype.value}; use sum or max")
    return _taps(ctx.g, x, params, float(start), "mul")


def _taps(g: Builder, x: Tensor, params: dict[str, Any], start: float, op: str) -> Tensor:
    """Combine the elements that stand at the same place of all windows, place by place."""
    moving = _moving(x, params)
    kernels = [moving.get(dim, NONE)[0] for dim in range(x.rank)]
    if math.prod(kernels) > MOST_TAPS:
        raise Unsupported(f"windows of {math.prod(kernels)} elements; {MOST_TAPS} are the most")
    sides = [moving.get(dim, NONE)[2] for dim in range(x.rank)]
    steps = tuple(moving.get(dim, NONE)[1] for dim in range(x.rank))
    gaps = [moving.get(dim, NONE)[3] for dim in range(x.rank)]
    counts = [_count(x.shape[dim], *moving.get(dim, NONE)) for dim in range(x.rank)]
    low, high = (tuple(side[at] for side in sides) for at in (0, 1))
    whole = emit.pad(g, x, low, high, start)
    total: Tensor | None = None
    for place in np.ndindex(*kernels):
        begin = tuple(int(at) * gap for at, gap in zip(place, gaps, strict=True))
        stop = tuple(
            first + (count - 1) * step + 1
            for first, count, step in zip(begin, counts, steps, strict=True)
        )
        part = emit.slice_(g, whole, begin, stop, steps)
        total = part if total is None else emit.elementwise(g, op, total, part)
    assert total is not None  # a window has one element at least
    return total


@primitive("select_and_scatter_add")
def select_and_scatter_add(ctx: JaxContext, dy: Tensor, x: Tensor, **params: Any) -> Tensor:
    """Add each window's cotangent where its first maximum stood: the gradient of max pooling."""
    if params["select_prim"].name != "ge":
        raise Unsupported("the gradient of a pooling that takes no maximum")
    pool = _pooling(x, params)
    value = ctx.g.max_pool2d_dx(pool.enter(ctx.g, x), pool.enter(ctx.g, dy), **pool.attrs)
    return pool.leave(ctx.g, value, ctx.shape)
