"""Internal operators in a trace: gradients that a model defines, and gradients that it computes."""

from collections.abc import Sequence

from pockengine.compiler.autodiff import derivatives
from pockengine.compiler.ir import F32, Value
from pockengine.errors import CompileError
from pockengine.frontends.emit.gradient import variable as emit_variable
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.aten.registry import AtenContext, aten


@aten("pockengine.cotangent.default")
def cotangent(ctx: AtenContext, y: Tensor) -> Tensor:
    """Return a placeholder of the cotangent of y."""
    if ctx.dtype is not F32:
        raise Unsupported("a gradient of a type other than float32")
    return plain(ctx.g.emit("cotangent", shape=ctx.shape).result)


@aten("pockengine.custom_gradient.default")
def custom_gradient(
    ctx: AtenContext, y: Tensor, cotangent: Tensor, x: Sequence[Tensor], dx: Sequence[Tensor]
) -> Tensor:
    """y, whose gradient with respect to each x is its dx, computed from the cotangent."""
    pairs = [tensor for pair in zip(x, dx, strict=True) for tensor in pair]
    values = [framework_order(ctx.g, tensor) for tensor in (y, cotangent, *pairs)]
    return plain(ctx.g.emit("custom_gradient", *values).result)


@aten("pockengine.hooked_.default")
def hooked(ctx: AtenContext, x: Tensor, cotangent: Tensor, dx: Tensor) -> Tensor:
    """x, whose gradient is the result of a hook."""
    return custom_gradient(ctx, x, cotangent, x=[x], dx=[dx])


@aten("pockengine.variable.default")
def variable(ctx: AtenContext, x: Tensor) -> Tensor:
    """x, which a derivative is taken of."""
    return emit_variable(ctx.g, x)


@aten("pockengine.gradients.default")
def gradients(
    ctx: AtenContext, y: Sequence[Tensor], dy: Sequence[Tensor], x: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradient of each x from results y with cotangents dy; 0 if there is none."""
    g = ctx.g
    cotangents: dict[Value, Value] = {}
    for result, slope in zip(y, dy, strict=True):
        value, cotangent = (framework_order(g, tensor) for tensor in (result, slope))
        before = cotangents.get(value)
        cotangents[value] = cotangent if before is None else g.add(before, cotangent)
    try:
        found = derivatives(g, cotangents, [variable.value for variable in x])
    except CompileError as error:
        raise Unsupported(f"a derivative within the model: {error}") from error
    nothing = {
        one.value: g.broadcast_to(g.scalar(0.0), shape=one.value.shape)
        for one in x
        if one.value not in found
    }
    return [Tensor({**nothing, **found}[one.value], one.layout) for one in x]
