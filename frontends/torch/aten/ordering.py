"""ATen operators that sort, or select an element of a sorted line."""

from pockengine.compiler.ir import F32, I64, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.order import best
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten

is_nan = emitter("is_nan")


@aten("sort.default", "sort.stable")
def sort(
    ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool | None = None
) -> list[Tensor]:
    """Sort along a dimension; equal elements keep their order."""
    return best(ctx.g, x, dim, count=x.shape[dim] if x.rank else 1, descending=descending)


@aten("argsort.default", "argsort.stable")
def argsort(ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool = True) -> Tensor:
    """Return the indices that sort a dimension."""
    return sort(ctx, x, dim, descending)[1]


@aten("topk.default")
def topk(
    ctx: AtenContext, x: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> list[Tensor]:
    """Take the k largest or smallest along a dimension, the best first."""
    return best(ctx.g, x, dim, count=k, descending=largest)


@aten("kthvalue.default")
def kthvalue(ctx: AtenContext, x: Tensor, k: int, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the k-th smallest along a dimension, and its index."""
    if not x.rank:
        return best(ctx.g, x, 0, count=1, descending=False)
    parts = [
        emit.slice_dim(ctx.g, part, dim, start=k - 1, stop=k)
        for part in best(ctx.g, x, dim, count=k, descending=False)
    ]
    return parts if keepdim else [emit.squeeze(ctx.g, part, [dim]) for part in parts]


@aten("median.dim")
def median_dim(ctx: AtenContext, x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the median along a dimension, the lower one of two, and its index; NaN if any is."""
    size = x.shape[dim] if x.rank else 1
    middle, place = kthvalue(ctx, x, (size + 1) // 2, dim=dim, keepdim=keepdim)
    if x.dtype is not F32:
        return [middle, place]
    last, nan_place = kthvalue(ctx, x, size, dim=dim, keepdim=keepdim)  # NaN, if there is any
    nan = is_nan(ctx.g, last)
    return [emit.choose(ctx.g, nan, *pair) for pair in ((last, middle), (nan_place, place))]


@aten("median.default")
def median(ctx: AtenContext, x: Tensor) -> Tensor:
    """Take the median of all elements, the lower one of two; those equal to it share a gradient."""
    middle = median_dim(ctx, reshape(ctx.g, x, (x.size,)), 0, keepdim=False)[0]
    return middle if x.dtype is not F32 else _shared(ctx.g, x, middle)


def _shared(g: Builder, x: Tensor, middle: Tensor) -> Tensor:
    """Return an element of x whose gradient all that equal it share."""
    hit = emit.elementwise(g, "eq", x, emit.unary("stop_gradient")(g, middle))
    total, count = (
        emit.reduce(g, "reduce_sum", emit.choose(g, hit, addend, 0.0), dims=(), keepdims=False)
        for addend in (x, 1.0)
    )
    return emit.elementwise(g, "div", total, count)


@aten("nanmedian.dim")
def nanmedian_dim(ctx: AtenContext, x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    """Return the median of the elements that are not NaN, the lower one of two, and its index."""
    g = ctx.g
    if not x.rank:
        return best(g, x, 0, count=1, descending=False)
    number = emit.cast(g, emit.elementwise(g, "eq", x, x), F32)
    count = emit.reduce(g, "reduce_sum", number, [dim], keepdims=True)
    half = emit.weighted(g, emit.arithmetic(g, "sub", count, 1.0), 0.5)
    middle = framework_order(g, emit.cast(g, emit.unary("floor")(g, half), I64))
    parts = (framework_order(g, part) for part in sort(ctx, x, dim, descending=False))
    medians = [plain(g.take_along(part, middle, axis=dim % x.rank)) for part in parts]
    return medians if keepdim else [emit.squeeze(g, part, [dim]) for part in medians]


@aten("nanmedian.default")
def nanmedian(ctx: AtenContext, x: Tensor) -> Tensor:
    """Take the median of all elements that are numbers."""
    middle = nanmedian_dim(ctx, reshape(ctx.g, x, (x.size,)), 0, keepdim=False)[0]
    return _shared(ctx.g, x, middle)


@aten("searchsorted.Tensor")
def searchsorted(
    ctx: AtenContext,
    sorted_sequence: Tensor,
    x: Tensor,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Tensor | None,
) -> Tensor:
    """Return how many elements of a sorted line are less, or with `right` not more, than each x."""
    g = ctx.g
    if sorter is not None:
        raise Unsupported("a sorter; sort the sequence before")
    lines = reshape(g, sorted_sequence, (*sorted_sequence.shape[:-1], 1, sorted_sequence.shape[-1]))
    before = "le" if right or side == "right" else "lt"
    less = emit.arithmetic(g, before, lines, reshape(g, x, (*x.shape, 1)))
    count = emit.reduce(g, "reduce_sum", emit.cast(g, less, F32), [-1], keepdims=False)
    return emit.cast(g, reshape(g, count, ctx.shape), ctx.dtype or I64)
