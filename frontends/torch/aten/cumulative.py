"""ATen operators whose element is the best of a line so far, or of a sum the logarithm."""

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.cumulative import best_so_far
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("cummax.default")
def cummax(ctx: AtenContext, x: Tensor, dim: int) -> list[Tensor]:
    """Return the largest so far along a dimension, and where it is."""
    return best_so_far(ctx.g, x, dim, "gt")


@aten("cummin.default")
def cummin(ctx: AtenContext, x: Tensor, dim: int) -> list[Tensor]:
    """Return the smallest so far along a dimension, and where it is."""
    return best_so_far(ctx.g, x, dim, "lt")


@aten("logcumsumexp.default")
def logcumsumexp(ctx: AtenContext, x: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the sum of exponentials so far, in rounds as for the best so far."""
    g, size, reach = ctx.g, x.shape[dim] if x.rank else 1, 1
    while reach < size:
        first = emit.slice_dim(g, x, dim, 0, reach)
        earlier = emit.slice_dim(g, x, dim, 0, size - reach)
        later = emit.slice_dim(g, x, dim, reach, size)
        x = emit.concat(g, [first, _log_add_exp(g, earlier, later)], dim)
        reach *= 2
    return x


def _log_add_exp(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """log(exp a + exp b), from the larger one on; equal infinities have no gap."""
    top = emit.elementwise(g, "maximum", a, b)
    gap = emit.unary("abs")(g, emit.elementwise(g, "sub", a, b))
    gap = emit.choose(g, emit.elementwise(g, "eq", a, b), 0.0, gap)
    more = emit.unary("log1p")(g, emit.unary("exp")(g, emit.unary("neg")(g, gap)))
    return emit.elementwise(g, "add", top, more)
