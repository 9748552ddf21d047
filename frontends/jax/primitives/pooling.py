"""Windows that take a maximum or a sum over one or two dimensions."""

import math
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir import F32, Builder, Shape, Value
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported, Window
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import NHWC, Tensor, permute, reshape, stored


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
    if x.rank > 4 or x.dtype is not F32:
        raise Unsupported(f"windows over {x.dtype.value}{list(x.shape)}; use float32 of rank 4")
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


@primitive("reduce_window_max")
def reduce_window_max(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the maximum of each window."""
    pool = _pooling(x, params)
    value = ctx.g.max_pool2d(pool.enter(ctx.g, x), dilation=pool.window.dilation, **pool.attrs)
    return pool.leave(ctx.g, value, ctx.shape)


@primitive("reduce_window_min")
def reduce_window_min(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Take the minimum of each window."""
    negative = emit.unary("neg")
    return negative(ctx.g, reduce_window_max(ctx, negative(ctx.g, x), **params))


@primitive("reduce_window_sum")
def reduce_window_sum(ctx: JaxContext, x: Tensor, **params: Any) -> Tensor:
    """Add up each window: its average, times its size."""
    pool = _pooling(x, params)
    if pool.window.dilation != (1, 1):
        raise Unsupported("average pooling with dilations")
    value = ctx.g.avg_pool2d(pool.enter(ctx.g, x), count_include_pad=True, **pool.attrs)
    average = pool.leave(ctx.g, value, ctx.shape)
    return emit.arithmetic(ctx.g, "mul", average, float(math.prod(pool.window.kernel)))


@primitive("select_and_scatter_add")
def select_and_scatter_add(ctx: JaxContext, dy: Tensor, x: Tensor, **params: Any) -> Tensor:
    """Add each window's cotangent where its first maximum stood: the gradient of max pooling."""
    if params["select_prim"].name != "ge":
        raise Unsupported("the gradient of a pooling that takes no maximum")
    pool = _pooling(x, params)
    value = ctx.g.max_pool2d_dx(pool.enter(ctx.g, x), pool.enter(ctx.g, dy), **pool.attrs)
    return pool.leave(ctx.g, value, ctx.shape)
