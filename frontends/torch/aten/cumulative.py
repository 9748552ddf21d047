"""ATen operators whose element is the best of a line so far."""

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
