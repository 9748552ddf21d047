"""Functions with a custom gradient: JAX traces the formula, and the graph includes it.

JAX traces the function's results together with its rule for the cotangents.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit.gradient import OwnGradient
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.places import SourceLocation
from pockengine.frontends.jax.primitives.registry import known_dtype
from pockengine.frontends.layout import Tensor

if TYPE_CHECKING:
    from pockengine.frontends.jax.graph import JaxprWalker, Known


def build(
    walker: "JaxprWalker", equation: Any, operands: Sequence["Known"], place: SourceLocation
) -> list["Known"]:
    """Build a call whose gradient to the tensors among its operands is its own rule's."""
    trained = [
        index
        for index, x in enumerate(operands)
        if isinstance(x, Tensor) and x.dtype is F32 and emit.trains(walker.g, x)
    ]
    shapes = [variable.aval for variable in equation.outvars]
    floats = [index for index, aval in enumerate(shapes) if known_dtype(aval.dtype) is F32]
    if not floats:
        raise Unsupported("a rule for the gradient of a function without results of float32")
    own = OwnGradient(walker.g, [shapes[index].shape for index in floats])
    try:
        jaxpr = _traced(equation, trained, floats)
    except Exception as error:  # a rule of the user's may raise anything
        first = next(iter(str(error).splitlines()), "")
        raise Unsupported(
            f"its own gradient does not run: {type(error).__name__}: {first}; check that jax.grad "
            "of it works"
        ) from error
    if any(isinstance(value, Tracer) for value in jaxpr.consts):
        raise Unsupported(
            "the rule of its own gradient reads an array from outside of the function, or one of "
            "nondiff_argnums; pass it as an argument of the function"
        )
    with walker.within(formula=True):
        built = walker.run(jaxpr, [*operands, *own.cotangents], place)
    if any(result is None for result in built):
        return [None] * len(shapes)
    results, slopes = built[: len(shapes)], built[len(shapes) :]
    pairs = [
        (operands[index], walker.tensor(slope))
        for index, slope in zip(trained, slopes, strict=True)
    ]
    results_of_floats = [walker.tensor(results[index]) for index in floats]
    for index, result in zip(floats, own.results(results_of_floats, pairs), strict=True):
        results[index] = result
    return list(results)


def _traced(equation: Any, trained: Sequence[int], floats: Sequence[int]) -> Any:
    """Return (operands, cotangents) -> (results, gradients of the trained operands) as a jaxpr."""
    count = len(equation.invars)

    def call(*operands: Any) -> list[Any]:
        bound = equation.primitive.get_bind_params(equation.params)
        functions, params = bound if isinstance(bound, tuple) else ((), bound)  # by JAX's version
        return list(equation.primitive.bind(*functions, *operands, **params))

    def both(*arguments: Any) -> list[Any]:
        operands, cotangents = list(arguments[:count]), arguments[count:]

        def of_trained(*values: Any) -> tuple[list[Any], list[Any]]:
            for index, value in zip(trained, values, strict=True):
                operands[index] = value
            results = call(*operands)
            return [results[index] for index in floats], results

        _, backward, results = jax.vjp(
            of_trained, *(operands[index] for index in trained), has_aux=True
        )
        return [*results, *backward(list(cotangents))]

    avals = [_like(atom.aval) for atom in equation.invars]
    return jax.make_jaxpr(both)(*avals, *(_like(equation.outvars[index].aval) for index in floats))


def _like(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
