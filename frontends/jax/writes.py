"""Writes that are no scatter of updates: without indices, or of a function's results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from pockengine.compiler.ir import BOOL, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.places import SourceLocation
from pockengine.frontends.jax.primitives.indexing import COMBINING, applied
from pockengine.frontends.jax.primitives.registry import JaxContext
from pockengine.frontends.layout import Tensor

if TYPE_CHECKING:
    from pockengine.frontends.jax.graph import JaxprWalker, Known

WHOLE = {**COMBINING, "scatter-add": "add", "scatter-sub": "sub"}
"""Meaning of a scatter with one window that covers x."""


def whole(ctx: JaxContext, name: str, x: Tensor, updates: Tensor) -> Tensor:
    """Write a window that no index moves, as `x.at[:].add(updates)` does."""
    if x.shape != updates.shape:
        raise Unsupported("a write without indices that leaves a part; use a slice")
    return updates if name == "scatter" else emit.elementwise(ctx.g, WHOLE[name], x, updates)


def applies_function(equation: Any) -> bool:
    """Return whether a scatter writes a function of the old elements, as `x.at[i].apply(f)`."""
    body = equation.params.get("update_jaxpr")
    return (
        equation.primitive.name == "scatter"
        and body is not None
        and body.outvars[0] is not body.invars[1]
    )


def apply_function(
    walker: "JaxprWalker", equation: Any, operands: Sequence["Known"], place: SourceLocation
) -> list["Known"]:
    """Apply the equation's function to the elements of x at the indices."""
    params, type_ = equation.params, equation.invars[0].aval
    by_elements = jaxpr_as_fun(ClosedJaxpr(params["update_jaxpr"], params["update_consts"]))
    for _ in type_.shape:
        by_elements = jax.vmap(by_elements)
    body = jax.make_jaxpr(by_elements)(type_, type_)
    (new,) = walker.run(body, [operands[0]] * 2, place)
    if new is None or 0 in equation.invars[1].aval.shape:  # `x.at[:]` has no indices
        return [new]
    x, index, updates = map(walker.tensor, operands)
    hit = applied(walker.context(equation), x, index, updates=updates, params=params)
    return [_where(walker.g, hit, walker.tensor(new), x)]


def _where(g: Builder, hit: Tensor, new: Tensor, x: Tensor) -> Tensor:
    if x.dtype is not BOOL:
        return emit.elementwise(g, "where", hit, new, x)
    changed = emit.elementwise(g, "logical_and", hit, new)
    unchanged = emit.elementwise(g, "logical_and", x, emit.unary("logical_not")(g, hit))
    return emit.elementwise(g, "logical_or", changed, unchanged)
