"""ATen operators that sort, or take what stands at a place of a sorted line."""

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.order import best
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, aten

is_nan = emitter("is_nan")


@aten("sort.default", "sort.stable")
def sort(
    ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool | None = None
) -> list[Tensor]:
    """Sort along a dimension; equal elements keep their order."""
    return best(ctx.g, x, dim, x.shape[dim] if x.rank else 1, descending)


@aten("argsort.default", "argsort.stable")
def argsort(ctx: AtenContext, x: Tensor, dim: int, descending: bool, stable: bool = True) -> Tensor:
    """Return the indices that sort a dimension."""
    return sort(ctx, x, dim, descending)[1]


@aten("topk.default")
def topk(
    ctx: AtenContext, x: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> list[Tensor]:
    """Take the k largest or smallest along a dimension, the best first."""
    return best(ctx.g, x, dim, k, largest)


@aten("kthvalue.default")
def kthvalue(ctx: AtenContext, x: Tensor, k: int, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the k-th smallest along a dimension, and where it is."""
    if not x.rank:
        return best(ctx.g, x, 0, 1, False)
    kept = [emit.slice_dim(ctx.g, part, dim, k - 1, k) for part in best(ctx.g, x, dim, k, False)]
    return kept if keepdim else [emit.squeeze(ctx.g, part, [dim]) for part in kept]


@aten("median.dim")
def median_dim(ctx: AtenContext, x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    """Take the median along a dimension, the lower one of two, and where it is; NaN if any is."""
    size = x.shape[dim] if x.rank else 1
    middle, place = kthvalue(ctx, x, (size + 1) // 2, dim, keepdim)
    if x.dtype is not F32:
        return [middle, place]
    last, nan_place = kthvalue(ctx, x, size, dim, keepdim)  # NaN, if there is any
    nan = is_nan(ctx.g, last)
    return [emit.choose(ctx.g, nan, *pair) for pair in ((last, middle), (nan_place, place))]


@aten("median.default")
def median(ctx: AtenContext, x: Tensor) -> Tensor:
    """Take the median of all elements, the lower one of two; those equal to it share a gradient."""
    g = ctx.g
    middle = median_dim(ctx, reshape(g, x, (x.size,)), 0, keepdim=False)[0]
    if x.dtype is not F32:
        return middle
    hit = emit.elementwise(g, "eq", x, emit.unary("stop_gradient")(g, middle))
    total, count = (
        emit.reduce(g, "reduce_sum", emit.choose(g, hit, addend, 0.0), (), False)
        for addend in (x, 1.0)
    )
    return emit.elementwise(g, "div", total, count)
