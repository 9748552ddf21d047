"""Windows that take a maximum, a sum or a product.

Our pooling goes over two dimensions. A window over more goes over the last two first, then over
those before: the first of equal maxima in that order is the first of all.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder, Shape, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.jax.primitives.shape import spread
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
        """Return our result as in JAX."""
        back = [self.order.index(dim) for dim in range(4)]
        return reshape(g, permute(Tensor(value, NHWC), back), shape)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes that all our pooling ops have."""
        window = self.window
        return {"kernel": window.kernel, "stride": window.stride, "padding": window.padding}


def _pooling(x: Tensor, params: dict[str, Any]) -> _Pooling:
    """Find the two dimensions that a window covers; a lower rank is filled up with ones."""
    if x.dtype is not F32 or _is_dilated(params):
        raise Unsupported(f"the gradient of windows over {x.dtype.value}, or of dilated inputs")
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
    others = [dim for dim in range(4) if dim not in over]
    (kh, sh, (top, bottom), dh), (kw, sw, (left, right), dw) = (windows[dim] for dim in over)
    window = Window((kh, kw), (sh, sw), (top, bottom, left, right), (dh, dw))
    return _Pooling(window, (others[0], others[1], over[0], over[1]))


NAMES = ("window_dimensions", "window_strides", "padding", "window_dilation")
NONE = (1, 1, (0, 0), 1)
"""The window of a dimension in which it does not move."""


def _moving(rank: int, params: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Return the window of each dimension that it covers or moves along."""
    sizes = [params.get(name) or (1,) * rank for name in NAMES]
    whole = [
        (size, step, tuple(map(int, sides)), gap)
        for size, step, sides, gap in zip(*sizes, strict=True)
    ]
    return {dim: how for dim, how in enumerate(whole) if how != NONE}


def _in_stages(ctx: JaxContext, x: Tensor, params: dict[str, Any], pool: Stage) -> Tensor:
    """Pool two dimensions at a time, the last ones first."""
    moving = _moving(x.rank, params)
    if x.rank <= 4 and len(moving) <= 2:
        return pool(ctx.g, x, params, ctx.shape)
    dims = sorted(moving)
    while dims:
        pair, dims = dims[-2:], dims[:-2]
        others = [dim for dim in range(x.rank) if dim not in pair]
        order = [*others, *pair]
        lines = permute(x, order)
        lead, area = lines.shape[: len(others)], lines.shape[len(others) :]
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
        return _combined(g, x, params, nothing=0.0, op="add")
    value = g.avg_pool2d(pool.enter(g, x), count_include_pad=True, **pool.attrs)
    average = pool.leave(g, value, shape)
    return emit.arithmetic(g, "mul", average, float(math.prod(pool.window.kernel)))


@primitive("reduce_window_max")
def reduce_window_max(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the maximum of each window."""
    if x.dtype is not F32 or _is_dilated(params):
        return _combined(ctx.g, x, params, nothing=_limits(ctx, x)[0], op="maximum")
    return _in_stages(ctx, x, params, _max_stage)


@primitive("reduce_window_min")
def reduce_window_min(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the minimum of each window."""
    if x.dtype is not F32 or _is_dilated(params):
        return _combined(ctx.g, x, params, nothing=_limits(ctx, x)[1], op="minimum")
    negative = emit.unary("neg")
    return negative(ctx.g, reduce_window_max(ctx, negative(ctx.g, x), **params))


@primitive("reduce_window_sum")
def reduce_window_sum(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Add up each window."""
    if x.dtype is not F32 or _is_dilated(params):
        return _combined(ctx.g, x, params, nothing=0.0, op="add")
    return _in_stages(ctx, x, params, _sum_stage)


def _limits(ctx: JaxContext, x: Tensor) -> tuple[float, float]:
    """Return bounds below and above all elements."""
    if x.dtype is F32:
        return -math.inf, math.inf
    limits = np.iinfo(ctx.dtypes[0])
    return float(limits.min), float(limits.max)


def _is_dilated(params: dict[str, Any]) -> bool:
    """Return whether the windows' input is dilated."""
    return any(gap != 1 for gap in params.get("base_dilation") or ())


def _product(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Multiply each window."""
    return _combined(ctx.g, x, params, nothing=1.0, op="mul")


WINDOWS: dict[str, Callable[..., Tensor]] = {
    "add": reduce_window_sum,
    "max": reduce_window_max,
    "min": reduce_window_min,
    "mul": _product,
}
"""Combines windows by a primitive, starting from its neutral element."""


def _combined(g: Builder, x: Tensor, params: dict[str, Any], nothing: float, op: str) -> Tensor:
    """Combine the windows element by element."""
    total: Tensor | None = None
    for part in taps(g, x, params, nothing):
        total = part if total is None else emit.elementwise(g, op, total, part)
    assert total is not None  # a window has one element at least
    return total


def taps(g: Builder, x: Tensor, params: dict[str, Any], padding: float) -> list[Tensor]:
    """Return, for each position within a window, the elements of all windows."""
    gaps = tuple(gap - 1 for gap in params.get("base_dilation") or (1,) * x.rank)
    if any(gaps):
        x = spread(g, x, gaps, padding)
    how = _how(x.rank, params)
    low, high = (tuple(sides[at] for _, _, sides, _ in how) for at in (0, 1))
    whole = emit.pad(g, x, low, high, value=padding)
    return [emit.slice_(g, whole, *bounds) for bounds in _bounds(x.shape, how)]


def inside(shape: Shape, params: dict[str, Any]) -> list[np.ndarray]:
    """Return, for each place of a window, which windows have an element of the array there."""
    gaps = params.get("base_dilation") or (1,) * len(shape)
    whole = np.zeros([(size - 1) * gap + 1 for size, gap in zip(shape, gaps, strict=True)], bool)
    whole[tuple(slice(None, None, gap) for gap in gaps)] = True
    wide, how = whole.shape, _how(len(shape), params)
    for dim, (_, _, (low, high), _) in enumerate(how):
        cut = slice(max(-low, 0), wide[dim] - max(-high, 0))
        whole = whole[(slice(None),) * dim + (cut,)]
    whole = np.pad(whole, [[max(side, 0) for side in sides] for _, _, sides, _ in how])
    return [whole[tuple(map(slice, *bounds))] for bounds in _bounds(wide, how)]


def _how(rank: int, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the window of each dimension: size, step, padding, gap."""
    moving = _moving(rank, params)
    return [moving.get(dim, NONE) for dim in range(rank)]


def _bounds(shape: Shape, how: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Shape, Shape, Shape]]:
    """Yield start, stop and step of the elements at each place of all windows."""
    kernels = [kernel for kernel, *_ in how]
    if math.prod(kernels) > MOST_TAPS:
        raise Unsupported(f"windows of {math.prod(kernels)} elements; {MOST_TAPS} are the most")
    steps = tuple(step for _, step, _, _ in how)
    counts = [_count(size, *each) for size, each in zip(shape, how, strict=True)]
    for place in np.ndindex(*kernels):
        start = tuple(int(at) * gap for at, (*_, gap) in zip(place, how, strict=True))
        stop = tuple(
            first + (count - 1) * step + 1
            for first, count, step in zip(start, counts, steps, strict=True)
        )
        yield start, stop, steps


@primitive("select_and_scatter_add")
def select_and_scatter_add(ctx: JaxContext, dy: Tensor, x: Tensor, **params: Any) -> Tensor:
    """Add each window's cotangent where its first maximum stood: the gradient of max pooling."""
    if params["select_prim"].name != "ge":
        raise Unsupported("the gradient of a pooling that takes no maximum")
    if ctx.forward:
        x = emit.unary("stop_gradient")(ctx.g, x)  # the position of the maximum has no gradient
    pool = _pooling(x, params)
    value = ctx.g.max_pool2d_dx(pool.enter(ctx.g, x), pool.enter(ctx.g, dy), **pool.attrs)
    return pool.leave(ctx.g, value, ctx.shape)


@primitive("select_and_gather_add")
def select_and_gather_add(ctx: JaxContext, dx: Tensor, x: Tensor, **params: Any) -> Tensor:
    """Return dx at each window's first maximum, or minimum."""
    g, is_max = ctx.g, params["select_prim"].name == "ge"
    pairs = zip(
        taps(g, x, params, -math.inf if is_max else math.inf), taps(g, dx, params, 0.0), strict=True
    )
    best, slope = next(pairs)
    for value, its in pairs:
        better = emit.elementwise(g, "gt" if is_max else "lt", value, best)
        best = emit.elementwise(g, "where", better, value, best)
        slope = emit.elementwise(g, "where", better, its, slope)
    return slope
