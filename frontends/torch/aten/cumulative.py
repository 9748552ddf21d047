"""ATen operators whose element is the best of a line so far, or of a sum the logarithm."""

from pockengine.frontends.emit.cumulative import associative_scan, best_so_far, log_add
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("cummax.default")
def cummax(ctx: AtenContext, x: Tensor, dim: int) -> list[Tensor]:
    """Return the cumulative maximum along a dimension, and its index."""
    return best_so_far(ctx.g, x, dim, "gt")


@aten("cummin.default")
def cummin(ctx: AtenContext, x: Tensor, dim: int) -> list[Tensor]:
    """Return the cumulative minimum along a dimension, and its index."""
    return best_so_far(ctx.g, x, dim, "lt")


@aten("logcumsumexp.default")
def logcumsumexp(ctx: AtenContext, x: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the sum of exponentials so far."""
    return associative_scan(ctx.g, x, dim % x.rank, log_add) if x.rank else x
