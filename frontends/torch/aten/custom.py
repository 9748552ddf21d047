"""Our own operators in a trace: how `gradients.py` marks gradients that a model defines."""

from collections.abc import Sequence

from pockengine.compiler.ir import F32
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("pockengine.cotangent.default")
def cotangent(ctx: AtenContext, y: Tensor) -> Tensor:
    """Stand for the cotangent of y."""
    if ctx.dtype is not F32:
        raise Unsupported("a gradient of a type other than float32")
    return plain(ctx.g.emit("cotangent", shape=ctx.shape).result)


@aten("pockengine.custom_gradient.default")
def custom_gradient(
    ctx: AtenContext, y: Tensor, cotangent: Tensor, x: Sequence[Tensor], dx: Sequence[Tensor]
) -> Tensor:
    """y, whose gradient to each x is the dx that the cotangent gives."""
    pairs = [tensor for pair in zip(x, dx, strict=True) for tensor in pair]
    values = [framework_order(ctx.g, tensor) for tensor in (y, cotangent, *pairs)]
    return plain(ctx.g.emit("custom_gradient", *values).result)


@aten("pockengine.hooked_.default")
def hooked(ctx: AtenContext, x: Tensor, cotangent: Tensor, dx: Tensor) -> Tensor:
    """x, whose gradient is what a hook makes of it."""
    return custom_gradient(ctx, x, cotangent, [x], [dx])
