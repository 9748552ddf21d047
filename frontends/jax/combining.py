"""Reductions, of windows too, by any function: it is built once for each place of a window."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from pockengine.compiler.ir import Shape
from pockengine.frontends import emit
from pockengine.frontends.jax.places import SourceLocation
from pockengine.frontends.jax.primitives import pooling
from pockengine.frontends.jax.primitives.reduction import MONOIDS
from pockengine.frontends.layout import Tensor, reshape

if TYPE_CHECKING:
    from pockengine.frontends.jax.graph import JaxprWalker, Known


def reduce_window(
    walker: "JaxprWalker", equation: Any, operands: Sequence["Known"], place: SourceLocation
) -> list["Known"]:
    """Combine each window, starting from the initial values; padding is skipped."""
    params = dict(equation.params)
    body = ClosedJaxpr(params.pop("jaxpr"), params.pop("consts"))
    name, count = _monoid(body), len(equation.outvars)
    tensors = [walker.tensor(operand) for operand in operands]
    taps = math.prod(params["window_dimensions"])
    if name in ("add", "mul") or (name is not None and taps > pooling.MOST_TAPS):
        # Of extremes the gradient of a tie is halved from place to place.
        y = pooling.WINDOWS[name](walker.context(equation), tensors[0], **params)
        return [emit.elementwise(walker.g, MONOIDS[name][1], y, tensors[1])]
    shape = tuple(equation.outvars[0].aval.shape)
    return _combined(
        walker, body, (tensors[:count], tensors[count:]), window=(params, shape), place=place
    )


def reduce(
    walker: "JaxprWalker", equation: Any, operands: Sequence["Known"], place: SourceLocation
) -> list["Known"]:
    """Combine all elements along some dimensions, starting from the initial values."""
    body, dims = equation.params["jaxpr"], equation.params["dimensions"]
    name, count = _monoid(body), len(equation.outvars)
    tensors = [walker.tensor(operand) for operand in operands]
    arrays, starts = tensors[:count], tensors[count:]
    if name is not None:
        op, combine = MONOIDS[name]
        y = emit.reduce(walker.g, op, arrays[0], dims, keepdims=False) if dims else arrays[0]
        return [emit.arithmetic(walker.g, combine, y, starts[0])]
    sizes = [size if dim in dims else 1 for dim, size in enumerate(arrays[0].shape)]
    window = {
        "window_dimensions": tuple(sizes),
        "window_strides": (1,) * len(sizes),
        "padding": ((0, 0),) * len(sizes),
    }
    shape = tuple(1 if dim in dims else size for dim, size in enumerate(arrays[0].shape))
    combined = _combined(walker, body, (arrays, starts), window=(window, shape), place=place)
    small = tuple(equation.outvars[0].aval.shape)
    return [None if x is None else reshape(walker.g, walker.tensor(x), small) for x in combined]


def _combined(
    walker: "JaxprWalker",
    body: Any,
    operands: tuple[Sequence[Tensor], Sequence[Tensor]],
    window: tuple[dict[str, Any], Shape],
    place: SourceLocation,
) -> list["Known"]:
    """Combine arrays from starts on by a function, for each place of a window."""
    (arrays, starts), (params, shape) = operands, window
    flat = (math.prod(shape),)
    taps = [pooling.taps(walker.g, x, params, 0.0) for x in arrays]
    lines: list[Known] = [
        reshape(walker.g, emit.broadcast(walker.g, start, shape), flat) for start in starts
    ]
    by_elements = _by_elements(body, flat)
    places = zip(pooling.inside(arrays[0].shape, params), zip(*taps, strict=True), strict=True)
    for here, parts in places:
        if np.any(here):
            flattened = [reshape(walker.g, part, flat) for part in parts]
            new = walker.run(by_elements, [*lines, *flattened], place)
            lines = [_where(walker, here.ravel(), *pair) for pair in zip(new, lines, strict=True)]
    return [None if x is None else reshape(walker.g, walker.tensor(x), shape) for x in lines]


def _monoid(body: Any) -> str | None:
    """Return the primitive that is all a function does to two numbers."""
    equations = body.jaxpr.eqns
    if len(equations) != 1 or equations[0].primitive.name not in MONOIDS:
        return None
    (equation,) = equations
    whole = equation.invars == body.jaxpr.invars and equation.outvars == body.jaxpr.outvars
    return str(equation.primitive.name) if whole and len(equation.invars) == 2 else None


def _by_elements(body: Any, shape: Shape) -> Any:
    """Return a function of numbers as one of lines of them."""
    types = [jax.ShapeDtypeStruct(shape, aval.dtype) for aval in body.out_avals]
    return jax.make_jaxpr(jax.vmap(jaxpr_as_fun(body)))(*types, *types)


def _where(walker: "JaxprWalker", here: np.ndarray, new: "Known", old: "Known") -> "Known":
    """Take new elements where a window's position is in bounds."""
    if np.all(here) or new is None:
        return new
    mask = walker.tensor(here)
    return emit.elementwise(walker.g, "where", mask, *map(walker.tensor, (new, old)))


COMBINING = {"reduce": reduce, "reduce_window": reduce_window}
"""Primitives that combine elements with the equation's function."""
