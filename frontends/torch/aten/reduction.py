"""ATen operators that reduce or scan along dimensions."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import Number
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.elementwise import truth
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("mean.default", "mean.dim")
def mean(
    ctx: AtenContext,
    x: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: object = None,
) -> Tensor:
    """Average over all or some dimensions."""
    return emit.reduce(
        ctx.g, "reduce_mean", emit.cast(ctx.g, x, F32), dims=dim or (), keepdims=keepdim
    )


@aten("sum.default", "sum.dim_IntList")
def sum_(
    ctx: AtenContext,
    x: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: object = None,
) -> Tensor:
    """Sum over all or some dimensions."""
    x = emit.cast(ctx.g, x, ctx.dtype or x.dtype)
    return emit.reduce(ctx.g, "reduce_sum", x, dims=dim or (), keepdims=keepdim)


def _turned(ctx: AtenContext, x: Tensor) -> Tensor:
    """Return numbers in the opposite order; -1 - x has no overflow for integers."""
    if x.dtype is F32:
        return emit.unary("neg")(ctx.g, x)
    return emit.arithmetic(ctx.g, "sub", -1, x)


def _same(ctx: AtenContext, x: Tensor) -> Tensor:
    return x


def _define_extreme(name: str, op: str, key: Callable[[AtenContext, Tensor], Tensor]) -> None:
    @aten(f"a{name}.default")
    def over(ctx: AtenContext, x: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
        return emit.reduce(ctx.g, op, x, dims=dim, keepdims=keepdim)

    @aten(f"{name}.default")
    def of_all(ctx: AtenContext, x: Tensor) -> Tensor:
        return emit.reduce(ctx.g, op, x, (), keepdims=False)

    @aten(f"{name}.dim")
    def with_index(ctx: AtenContext, x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
        """Take the extreme along a dimension, and its index; one of equal elements counts."""
        return _best(ctx, x, key(ctx, x), dim)


_define_extreme("max", "reduce_max", _same)
_define_extreme("min", "reduce_min", _turned)


def _best(ctx: AtenContext, x: Tensor, key: Tensor, dim: int) -> list[Tensor]:
    """Take the element of x at the largest key, and its index, in the result's shape."""
    if not x.rank:
        x, key, dim = reshape(ctx.g, x, (1,)), reshape(ctx.g, key, (1,)), 0
    place = _argmax(ctx, key, dim)
    best = _take_at(ctx, x, place, dim)
    return [reshape(ctx.g, y, ctx.shape) for y in (best, place)]


def _take_at(ctx: AtenContext, x: Tensor, place: Tensor, dim: int) -> Tensor:
    values = framework_order(ctx.g, x), framework_order(ctx.g, place)
    return plain(ctx.g.take_along(*values, axis=dim % x.rank))


@aten("argmin.default")
def argmin(ctx: AtenContext, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Return the index of the smallest element along a dimension, or of all of them."""
    return argmax(ctx, _turned(ctx, x), dim, keepdim)


@aten("prod.default", "prod.dim_int")
def prod(
    ctx: AtenContext, x: Tensor, dim: int | None = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    """Multiply over all or one dimension."""
    x = emit.cast(ctx.g, x, ctx.dtype or x.dtype)
    return emit.reduce(
        ctx.g, "reduce_prod", x, dims=() if dim is None else (dim,), keepdims=keepdim
    )


@aten("std.correction", "std.default", "std.dim")
def std(
    ctx: AtenContext,
    x: Tensor,
    dim: Sequence[int] | None = None,
    correction: Number | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
) -> Tensor:
    """Square root of the variance; where that is zero, so is the gradient."""
    return _guarded(
        ctx, "sqrt", var(ctx, x, dim, correction=correction, keepdim=keepdim, unbiased=unbiased)
    )


@aten("var.correction", "var.default", "var.dim")
def var(
    ctx: AtenContext,
    x: Tensor,
    dim: Sequence[int] | None = None,
    correction: Number | None = None,
    keepdim: bool = False,
    unbiased: bool = True,
) -> Tensor:
    """Mean squared deviation, with n - correction in place of n (1 by default)."""
    if correction is None:
        correction = 1 if unbiased else 0
    dims = list(range(x.rank)) if not dim or not x.rank else list(dim)
    count = 1
    for axis in dims:
        count *= x.shape[axis]
    divisor = count - correction
    if divisor <= 0:
        raise Unsupported(f"variance of {count} elements with correction {correction}")
    mean = emit.reduce(ctx.g, "reduce_mean", x, dims, keepdims=True)
    mean = emit.unary("stop_gradient")(ctx.g, mean)  # deviations add up to zero
    squares = emit.unary("square")(ctx.g, emit.arithmetic(ctx.g, "sub", x, mean))
    total = emit.reduce(ctx.g, "reduce_sum", squares, dims=dims, keepdims=keepdim)
    return emit.weighted(ctx.g, total, 1 / divisor)


def _define_with_mean(overload: str, spread: Callable[..., Tensor]) -> None:
    @aten(overload)
    def rule(
        ctx: AtenContext,
        x: Tensor,
        dim: Sequence[int] | None,
        correction: Number | None,
        keepdim: bool,
    ) -> list[Tensor]:
        mean = emit.reduce(ctx.g, "reduce_mean", x, dims=dim or (), keepdims=keepdim)
        return [spread(ctx, x, dim, correction, keepdim), mean]


_define_with_mean("std_mean.correction", std)
_define_with_mean("var_mean.correction", var)


@aten("logsumexp.default")
def logsumexp(ctx: AtenContext, x: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    """log(sum(exp(x)))."""
    return emit.log_sum_exp(ctx.g, x, dim, keepdims=keepdim)


@aten("linalg_vector_norm.default")
def vector_norm(
    ctx: AtenContext,
    x: Tensor,
    ord: Number,
    dim: Sequence[int] | None,
    keepdim: bool,
    dtype: object = None,
) -> Tensor:
    """(sum |x|^ord)^(1/ord); the gradient of a norm that is zero is zero, as in PyTorch."""
    size, dims = emit.unary("abs")(ctx.g, x), dim or ()
    if math.isinf(ord):
        return emit.reduce(
            ctx.g, "reduce_max" if ord > 0 else "reduce_min", size, dims=dims, keepdims=keepdim
        )
    if ord == 0:
        present = emit.cast(ctx.g, emit.arithmetic(ctx.g, "ne", x, 0.0), x.dtype)
        return emit.reduce(ctx.g, "reduce_sum", present, dims=dims, keepdims=keepdim)
    if ord == 1:
        return emit.reduce(ctx.g, "reduce_sum", size, dims=dims, keepdims=keepdim)
    powers = emit.unary("square")(ctx.g, x) if ord == 2 else _powers(ctx, size, float(ord))
    total = emit.reduce(ctx.g, "reduce_sum", powers, dims=dims, keepdims=keepdim)
    return _guarded(ctx, "sqrt", total) if ord == 2 else _guarded(ctx, "pow", total, 1 / ord)


def _powers(ctx: AtenContext, size: Tensor, order: float) -> Tensor:
    """Raise |x|; below order 1, where the slope at zero is infinite, zeros get no gradient."""
    if order > 1:
        return emit.arithmetic(ctx.g, "pow", size, order)
    zero = emit.arithmetic(ctx.g, "eq", size, 0.0)
    safe = emit.choose(ctx.g, zero, 1.0, size)
    powers = emit.arithmetic(ctx.g, "pow", safe, order)
    return emit.choose(ctx.g, zero, 0.0 if order > 0 else math.inf, powers)


def _guarded(ctx: AtenContext, op: str, x: Tensor, *exponent: float) -> Tensor:
    """Take a root of numbers of at least 0; the gradient at zero is zero."""
    zero = emit.arithmetic(ctx.g, "eq", x, 0.0)
    safe = emit.choose(ctx.g, zero, 1.0, x)
    root = emit.arithmetic(ctx.g, op, safe, *exponent)
    at_zero = math.inf if exponent and exponent[0] < 0 else 0.0
    return emit.choose(ctx.g, zero, at_zero, root)


def _define_logical(name: str, op: str) -> None:
    @aten(f"{name}.default", f"{name}.dim", f"{name}.dims")
    def rule(
        ctx: AtenContext, x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False
    ) -> Tensor:
        dims = [dim] if isinstance(dim, int) else dim or ()
        true = emit.cast(ctx.g, truth(ctx, x), F32)
        return emit.arithmetic(
            ctx.g, "ne", emit.reduce(ctx.g, op, true, dims=dims, keepdims=keepdim), 0.0
        )


for _name, _op in {"all": "reduce_min", "any": "reduce_max"}.items():
    _define_logical(_name, _op)


@aten("_cdist_forward.default")
def cdist(ctx: AtenContext, x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Distances by a p-norm between all rows of two batches of matrices."""
    rows = reshape(ctx.g, x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    others = reshape(ctx.g, x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))
    return _distance(ctx, emit.arithmetic(ctx.g, "sub", rows, others), p)


def _distance(ctx: AtenContext, difference: Tensor, p: float) -> Tensor:
    """Norm along the last dimension; of largest differences each gets the whole gradient."""
    if not math.isinf(p):
        return vector_norm(ctx, difference, p, [-1], keepdim=False)
    stop = emit.unary("stop_gradient")
    size = emit.unary("abs")(ctx.g, difference)
    most = stop(ctx.g, emit.reduce(ctx.g, "reduce_max", size, [-1], keepdims=True))
    hit = emit.elementwise(ctx.g, "eq", size, most)
    nothing = emit.arithmetic(ctx.g, "sub", size, stop(ctx.g, size))
    shares = emit.choose(ctx.g, hit, nothing, 0.0)
    slope = emit.reduce(ctx.g, "reduce_sum", shares, [-1], keepdims=True)
    return emit.squeeze(ctx.g, emit.elementwise(ctx.g, "add", most, slope), [-1])


@aten("_pdist_forward.default")
def pdist(ctx: AtenContext, x: Tensor, p: float) -> Tensor:
    """Distances by a p-norm between the rows of a matrix, each pair once."""
    pairs = (plain(ctx.g.constant(index)) for index in np.triu_indices(x.shape[0], 1))
    values = framework_order(ctx.g, x)
    rows, others = (plain(ctx.g.take(values, index.value, axis=0)) for index in pairs)
    return _distance(ctx, emit.arithmetic(ctx.g, "sub", rows, others), p)


@aten("_safe_softmax.default")
def safe_softmax(ctx: AtenContext, x: Tensor, dim: int, dtype: object = None) -> Tensor:
    """Softmax; zeros if all elements are -infinity."""
    top = emit.reduce(ctx.g, "reduce_max", x, [dim], keepdims=True)
    hidden = emit.arithmetic(ctx.g, "eq", top, -math.inf)
    zero = emit.scalar(ctx.g, 0.0, F32)
    y = emit.along_last(ctx.g, "softmax", emit.elementwise(ctx.g, "where", hidden, zero, x), dim)
    return emit.elementwise(ctx.g, "where", hidden, zero, y)


@aten("cumsum.default")
def cumsum(ctx: AtenContext, x: Tensor, dim: int, dtype: object = None) -> Tensor:
    """Sum up to each element along a dimension."""
    x = emit.cast(ctx.g, x, ctx.dtype or x.dtype)
    if not x.rank:
        return x
    return Tensor(ctx.g.cumsum(x.value, axis=x.axis(dim)), x.layout)


@aten("argmax.default")
def argmax(ctx: AtenContext, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Return the index of the largest element along a dimension, or of all of them."""
    if dim is None or not x.rank:
        x, dim = reshape(ctx.g, x, (x.value.type.size,)), 0
    return reshape(ctx.g, _argmax(ctx, x, dim), ctx.shape)


def _argmax(ctx: AtenContext, x: Tensor, dim: int) -> Tensor:
    """Return the index of the largest element along a dimension, which keeps size 1."""
    others = [other for other in range(x.rank) if other != dim % x.rank]
    layout = tuple(others.index(other) for other in x.layout if other in others)
    places = Tensor(ctx.g.argmax(x.value, axis=x.axis(dim)), layout)
    shape = list(x.shape)
    shape[dim] = 1
    return reshape(ctx.g, places, tuple(shape))


@aten("softmax.int", "_softmax.default")
def softmax(ctx: AtenContext, x: Tensor, dim: int, **_: object) -> Tensor:
    """exp(x) over its sum along a dimension."""
    return emit.along_last(ctx.g, "softmax", x, dim)


@aten("log_softmax.int", "_log_softmax.default")
def log_softmax(ctx: AtenContext, x: Tensor, dim: int, **_: object) -> Tensor:
    """Logarithm of the softmax along a dimension."""
    return emit.along_last(ctx.g, "log_softmax", x, dim)


@aten("histc.default")
def histc(ctx: AtenContext, x: Tensor, bins: int, min: Number, max: Number) -> Tensor:
    """Count the elements in bins of equal width; the last holds its upper end."""
    if min >= max:
        raise Unsupported("histc over the range of its data; pass min and max")
    g, flat = ctx.g, reshape(ctx.g, x, (1, x.size))
    above = emit.arithmetic(g, "mul", emit.arithmetic(g, "sub", flat, float(min)), float(bins))
    place = emit.arithmetic(g, "div", above, float(max - min))
    lower = plain(g.constant(np.arange(bins, dtype=np.float32)[:, None]))
    upper = plain(g.constant(np.append(np.arange(1, bins), np.inf).astype(np.float32)[:, None]))
    reached = emit.arithmetic(
        g,
        "logical_and",
        *(emit.arithmetic(g, "ge", place, lower), emit.arithmetic(g, "le", flat, float(max))),
    )
    inside = emit.arithmetic(g, "logical_and", reached, emit.arithmetic(g, "lt", place, upper))
    return emit.reduce(g, "reduce_sum", emit.cast(g, inside, F32), (1,), keepdims=False)
