"""Equations with nested jaxprs: inline calls, unroll loops, select branches.

Some of JAX's own functions with indirect bodies are recognized by name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from pockengine.compiler.ir import I32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import branches
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax import own_gradient
from pockengine.frontends.jax.places import SourceLocation, is_jax, is_library
from pockengine.frontends.jax.primitives import random
from pockengine.frontends.jax.primitives.random import Key
from pockengine.frontends.jax.primitives.registry import JaxContext
from pockengine.frontends.layout import Tensor, reshape

if TYPE_CHECKING:
    from pockengine.frontends.jax.graph import JaxprWalker, Known

LONGEST = 20_000
"""Maximum equations of an unrolled loop."""

BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
OWN_GRADIENTS = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
"""Calls of functions with custom gradients; the last is from JAX before 0.7."""

SAME_GRADIENT = {"_sinc_maclaurin", "_softmax", "logaddexp", "logaddexp2", "relu", "relu6"}
"""JAX's own functions whose rule is for speed or exactness: ours derives the same."""


def _relu(ctx: JaxContext, x: Tensor) -> Tensor:
    return emit.unary("relu")(ctx.g, x)


def _relu6(ctx: JaxContext, x: Tensor) -> Tensor:
    return Tensor(ctx.g.hardtanh(x.value, min=0.0, max=6.0), x.layout)


CALLS: Mapping[str, Callable[..., Tensor]] = {
    "relu": _relu,  # by its body a tie at zero would have half a gradient
    "relu6": _relu6,
    "_normal": random.normal,
    "_uniform": random.uniform,
}
"""Functions of JAX with their own rules."""


def inline(
    walker: "JaxprWalker", equation: Any, operands: Sequence["Known"], place: SourceLocation
) -> list["Known"]:
    """Inline the body of a call."""
    body = next(equation.params[key] for key in BODIES if key in equation.params)
    jaxpr = body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    if _has_own_gradient(walker, equation, jaxpr, operands):
        return own_gradient.build(walker, equation, operands, place)
    rule = _own_rule(equation, jaxpr, operands)
    if rule is None:
        with walker.within(smooth=equation.primitive.name == "custom_jvp_call"):
            return walker.run(jaxpr, operands, place)
    arguments = [x if isinstance(x, Key) else walker.tensor(x) for x in operands]
    return [rule(walker.context(equation), *arguments)]


def _own_rule(
    equation: Any, jaxpr: Any, operands: Sequence["Known"]
) -> Callable[..., Tensor] | None:
    """Find the rule of one of JAX's own functions that reads a value unknown at compile time."""
    rule = CALLS.get(equation.params.get("name", ""))
    info = jaxpr.jaxpr.debug_info
    if rule is None or not is_library(info.func_filename or ""):
        return None
    draws = equation.params["name"].startswith("_")
    if any(isinstance(x, Key if draws else Tensor) for x in operands):
        return rule
    return None


def _has_own_gradient(
    walker: "JaxprWalker", equation: Any, jaxpr: Any, operands: Sequence["Known"]
) -> bool:
    """Return whether a trained function has a gradient rule that ours would not equal."""
    kind = equation.primitive.name
    if not walker.forward or kind not in OWN_GRADIENTS:
        return False
    info = jaxpr.jaxpr.debug_info
    if info.func_name in SAME_GRADIENT and is_jax(info.func_filename or ""):
        return False
    return any(isinstance(x, Tensor) and emit.trains(walker.g, x) for x in operands)


def scan(
    walker: "JaxprWalker", equation: Any, operands: list["Known"], place: SourceLocation
) -> list["Known"]:
    """Unroll a loop over the first dimension of its inputs."""
    params = equation.params
    length, body = params["length"], params["jaxpr"]
    if length * max(len(body.jaxpr.eqns), 1) > LONGEST:
        raise Unsupported(
            f"a loop of {length} steps with {len(body.jaxpr.eqns)} operations each, which is too "
            "long to unroll; shorten it"
        )
    fixed, carried = params["num_consts"], params["num_carry"]
    consts, carry = operands[:fixed], operands[fixed : fixed + carried]
    rows = operands[fixed + carried :]
    stacks: list[list[Known]] = [[] for _ in equation.outvars[carried:]]
    order = range(length)[::-1] if params["reverse"] else range(length)
    for step in order:
        items = [_item(walker, row, step) for row in rows]
        results = walker.run(body, [*consts, *carry, *items], place)
        carry = results[:carried]
        for stack, result in zip(stacks, results[carried:], strict=True):
            stack.append(result)
    if params["reverse"]:
        stacks = [stack[::-1] for stack in stacks]
    return [*carry, *(_stack(walker, stack) for stack in stacks)]


def _item(walker: "JaxprWalker", row: "Known", index: int) -> "Known":
    """Return one row of a loop's inputs."""
    if row is None or isinstance(row, Key):
        return None if row is None else row.derived("item", index)
    if not isinstance(row, Tensor):
        return row[index]
    part = emit.slice_dim(walker.g, row, 0, start=index, stop=index + 1)
    return emit.squeeze(walker.g, part, [0])


def _stack(walker: "JaxprWalker", parts: Sequence["Known"]) -> "Known":
    """Stack a loop's results along a new first dimension."""
    if any(part is None for part in parts):
        return None
    if not any(isinstance(part, (Tensor, Key)) for part in parts):
        return np.stack(parts)
    tensors = [walker.tensor(part) for part in parts]
    wide = [reshape(walker.g, part, (1, *part.shape)) for part in tensors]
    return emit.concat(walker.g, wide, 0)


def cond(
    walker: "JaxprWalker", equation: Any, operands: list["Known"], place: SourceLocation
) -> list["Known"]:
    """Select a branch at import if possible, or compute all and select by data."""
    index, *arguments = operands
    bodies = equation.params["branches"]
    if index is None:
        return [None] * len(equation.outvars)
    if isinstance(index, Tensor):
        return _chosen(walker, equation, index, arguments=arguments, place=place)
    if isinstance(index, Key):
        raise Unsupported("a branch that a random key chooses; draw a number by it first")
    return walker.run(bodies[min(max(int(index), 0), len(bodies) - 1)], arguments, place)


def _chosen(
    walker: "JaxprWalker",
    equation: Any,
    index: Tensor,
    arguments: Sequence["Known"],
    place: SourceLocation,
) -> list["Known"]:
    """Compute all branches and take the results of the one that the index names."""
    g, bodies = walker.g, equation.params["branches"]
    taken = branches.conditions(g, index, len(bodies))
    found = []
    for here, body in zip(taken, bodies, strict=True):
        guarded = [branches.guarded(g, x, here) if isinstance(x, Tensor) else x for x in arguments]
        found.append(walker.run(body, guarded, place))
    results: list[Known] = []
    for parts in zip(*found, strict=True):
        if any(part is None or isinstance(part, Key) for part in parts):
            results.append(None)
        else:
            results.append(branches.chosen(g, taken, [walker.tensor(part) for part in parts]))
    return results


def linear_solve(
    walker: "JaxprWalker", equation: Any, operands: list["Known"], place: SourceLocation
) -> list["Known"]:
    """Solve with the equation's function; the gradient is the equation's own."""
    trains = any(isinstance(x, Tensor) and emit.trains(walker.g, x) for x in operands)
    if walker.forward and trains:
        if equation.params["jaxprs"].transpose_solve is None:
            raise Unsupported(
                "a solver without transpose_solve, of which JAX knows no gradient; give "
                "transpose_solve=, or symmetric=True if the matrix is symmetric"
            )
        return own_gradient.build(walker, equation, operands, place)
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = operands[first : first + lengths.solve]
    sides = operands[first + lengths.solve + lengths.transpose_solve :]
    return walker.run(jaxprs.solve, [*consts, *sides], place)


def while_(
    walker: "JaxprWalker", equation: Any, operands: list["Known"], place: SourceLocation
) -> list["Known"]:
    """Unroll a loop whose condition does not depend on data."""
    params = equation.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body = operands[:first], operands[first : first + second]
    carry = operands[first + second :]
    done, size = 0, max(len(params["body_jaxpr"].jaxpr.eqns), 1)
    while True:
        (more,) = walker.run(params["cond_jaxpr"], [*of_cond, *carry], place)
        if more is None or isinstance(more, (Tensor, Key)):
            raise Unsupported(
                "a while loop whose end depends on data; use lax.scan or lax.fori_loop with a "
                "fixed number of steps"
            )
        if not bool(more):
            return list(carry)
        if done > LONGEST:
            raise Unsupported(f"a while loop of more than {LONGEST} operations; shorten it")
        carry = walker.run(params["body_jaxpr"], [*of_body, *carry], place)
        done += size


def key_result(name: str, equation: Any, operands: Sequence["Known"]) -> list["Known"]:
    """Name the keys that a primitive derives from others; it may return only keys."""
    key = next(operand for operand in operands if isinstance(operand, Key))
    if name in ("random_wrap", "random_unwrap", "copy", "device_put", "optimization_barrier"):
        return [key] * len(equation.outvars)
    types = [variable.aval.dtype for variable in equation.outvars]
    if any("key" not in str(t) and t != np.uint32 for t in types):
        raise Unsupported("the bits of a random key; draw by it")
    others = [x for x in operands if x is not key]
    if any(isinstance(x, Tensor) and x.size > 1 for x in others):
        raise Unsupported("random keys that depend on data; fold in a number, such as the step's")
    how = sorted((param, str(value)) for param, value in equation.params.items())
    return [key.derived(name, i, how, *others) for i in range(len(types))]


def number_of_key(name: str, equation: Any, operands: Sequence["Known"]) -> Key | None:
    """Return a placeholder of an integer that becomes uint32, such as one folded into a key."""
    if name != "convert_element_type" or equation.params["new_dtype"] != np.uint32:
        return None
    (number,) = operands
    if not isinstance(number, Tensor) or number.size > 1 or number.dtype not in (I32, I64):
        return None
    return Key(("number", number.value.name))


def platform(
    walker: "JaxprWalker", equation: Any, operands: list["Known"], place: SourceLocation
) -> list["Known"]:
    """Choose a function's branch for the CPU, or its default."""
    groups = equation.params["platforms"]
    if equation.params.get("has_default"):  # JAX 0.6 counts the default apart
        groups = (*groups, None)
    named = (i for i, group in enumerate(groups) if group is not None and "cpu" in group)
    default = (i for i, group in enumerate(groups) if group is None)
    for number in (*named, *default):
        return [np.array(number, np.int32)]
    raise Unsupported("a function for other platforms than a CPU; give it a default")


CONTROL: Mapping[str, Callable[..., list["Known"]]] = {
    **dict.fromkeys(
        (
            "checkpoint",
            "closed_call",
            "composite",
            "core_call",
            *OWN_GRADIENTS,
            "jit",
            "pjit",
            "remat",
            "remat2",
        ),
        inline,
    ),
    "cond": cond,
    "custom_linear_solve": linear_solve,
    "platform_index": platform,
    "scan": scan,
    "while": while_,
}
"""Primitives with jaxprs."""
