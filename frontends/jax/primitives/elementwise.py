"""Primitives that work on each element by itself."""

import math
from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Value
from pockengine.frontends import emit
from pockengine.frontends.emit import gradient as emit_gradient
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives.registry import Context, primitive
from pockengine.frontends.layout import Tensor, plain

SAME_NAME = """
    acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 floor log log1p neg rsqrt sign
    sin sinh sqrt square tan tanh
"""
UNARY = {name: name for name in SAME_NAME.split()} | {"logistic": "sigmoid"}
"""Primitives of one operand: our op of the same meaning."""

BINARY = {
    "add": "add",
    "add_any": "add",
    "atan2": "atan2",
    "eq": "eq",
    "ge": "ge",
    "gt": "gt",
    "le": "le",
    "lt": "lt",
    "max": "maximum",
    "min": "minimum",
    "mul": "mul",
    "ne": "ne",
    "rem": "rem",
    "sub": "sub",
}

SAME = ("copy", "copy_p", "optimization_barrier", "sharding_constraint")


def _define_tables() -> None:
    for name, op in UNARY.items():
        primitive(name)(lambda ctx, x, op=op, **_: emit.unary(op)(ctx.g, x))
    for name, op in BINARY.items():
        primitive(name)(lambda ctx, a, b, op=op, **_: call(ctx, op, *_lean(ctx, a, b)))
    primitive(*SAME)(lambda ctx, *xs, **_: list(xs))


def call(ctx: Context, op: str, *operands: emit.Operand) -> Tensor:
    """Apply one of our elementwise ops to tensors and numbers."""
    return emit.arithmetic(ctx.g, op, *operands)


def _lean(ctx: Context, *operands: Tensor) -> list[Tensor]:
    """Drop leading dimensions of size 1 that JAX gives a bias before it adds it."""
    full = any(operand.shape == ctx.shape for operand in operands)
    return [_without_ones(x) if full and x.shape != ctx.shape else x for x in operands]


def _without_ones(x: Tensor) -> Tensor:
    node = x.value.node
    if node is None or node.op != "reshape" or x.layout != tuple(range(x.rank)):
        return x
    inner = node.operands[0]
    lead = x.rank - len(inner.shape)
    return plain(inner) if lead > 0 and x.shape == (1,) * lead + inner.shape else x


@primitive("abs")
def abs_(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """|x|, whose gradient at zero is that of x."""
    trains = ctx.forward and x.dtype is F32 and emit.trains(ctx.g, x)
    if not trains or ctx.smooth or _positive(x):
        return emit.unary("abs")(ctx.g, x)
    below = call(ctx, "lt", x, 0.0)
    return emit.elementwise(ctx.g, "where", below, emit.unary("neg")(ctx.g, x), x)


def _positive(x: Tensor) -> bool:
    """Return whether a tensor is a sum of powers of e, as in logsumexp."""
    node = x.value.node
    while node is not None and node.op in ("reshape", "reduce_sum"):
        node = node.operands[0].node
    return node is not None and node.op == "exp"


@primitive("stop_gradient")
def stop_gradient(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    return emit.unary("stop_gradient")(ctx.g, x) if x.dtype is F32 and ctx.forward else x


@primitive("reduce_precision")
def reduce_precision(
    ctx: Context, x: Tensor, *, exponent_bits: int, mantissa_bits: int, **_: Any
) -> Tensor:
    """Return x, where that has no more bits than are asked for."""
    if exponent_bits < 8 or mantissa_bits < 23:
        raise Unsupported(
            f"rounding to {exponent_bits} bits of exponent and {mantissa_bits} of mantissa, which "
            "the device does not have; leave it out, or round outside of the compiled function"
        )
    return x


@primitive("exp2")
def exp2(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """2^x."""
    return emit.unary("exp")(ctx.g, call(ctx, "mul", x, math.log(2)))


@primitive("is_finite")
def is_finite(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Whether x is neither infinite nor no number."""
    return call(ctx, "lt", emit.unary("abs")(ctx.g, x), math.inf)


@primitive("round")
def round_(ctx: Context, x: Tensor, *, rounding_method: Any, **_: Any) -> Tensor:
    """Round to the nearest integer; halves to the even one, or away from zero."""
    if int(rounding_method) == 1:
        return emit.unary("round")(ctx.g, x)
    up = emit.unary("floor")(ctx.g, call(ctx, "add", emit.unary("abs")(ctx.g, x), 0.5))
    return call(ctx, "mul", emit.unary("sign")(ctx.g, x), up)


@primitive("not")
def not_(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Logical not."""
    _need_bool(x)
    return emit.unary("logical_not")(ctx.g, x)


@primitive("and")
def and_(ctx: Context, a: Tensor, b: Tensor, **_: Any) -> Tensor:
    """Logical and."""
    _need_bool(a)
    return call(ctx, "logical_and", a, b)


@primitive("or")
def or_(ctx: Context, a: Tensor, b: Tensor, **_: Any) -> Tensor:
    """Logical or."""
    _need_bool(a)
    return call(ctx, "logical_or", a, b)


@primitive("xor")
def xor(ctx: Context, a: Tensor, b: Tensor, **_: Any) -> Tensor:
    """Whether exactly one holds."""
    _need_bool(a)
    return call(ctx, "ne", a, b)


def _need_bool(x: Tensor) -> None:
    if x.dtype is not BOOL:
        raise Unsupported("bits of integers; use arithmetic or booleans")


@primitive("integer_pow")
def integer_pow(ctx: Context, x: Tensor, *, y: int, **_: Any) -> Tensor:
    """Raise to a power that is a small integer, by squaring."""
    power = _whole_power(ctx, x, y)
    if y >= -1 or not ctx.forward or not emit.trains(ctx.g, x):
        return power

    def formula(dy: Value) -> Value:
        slope = ctx.g.mul(_whole_power(ctx, x, y - 1).value, ctx.g.scalar(float(y)))
        return ctx.g.mul(dy, slope)

    # By the chain of squares it would be infinity times 0 at x = 0.
    return emit_gradient.with_gradient(ctx.g, power, (x.value, formula))


def _whole_power(ctx: Context, x: Tensor, y: int) -> Tensor:
    if y < 0:
        return emit.unary("reciprocal")(ctx.g, _whole_power(ctx, x, -y))
    if y == 0:
        return emit.broadcast(ctx.g, emit.scalar(ctx.g, 1, x.dtype), x.shape)
    if y == 1:
        return x
    half = _whole_power(ctx, x, y // 2)
    square = emit.unary("square")(ctx.g, half) if x.dtype is F32 else call(ctx, "mul", half, half)
    return call(ctx, "mul", square, x) if y % 2 else square


@primitive("pow")
def pow_(ctx: Context, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """x^y; y may be an integer, and has no gradient then."""
    if x.dtype is not F32:
        raise Unsupported("powers of integers; cast them to float32")
    if y.dtype is not F32 or not ctx.forward:
        return call(ctx, "pow", x, emit.cast(ctx.g, y, F32))
    g = ctx.g

    def log(value: Value) -> Value:
        return g.log(g.where(g.eq(value, g.scalar(0.0)), g.scalar(1.0), value))

    return emit_gradient.power(g, x, y, log)


@primitive("div")
def div(ctx: Context, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """x / y; integers lose the fraction."""
    if x.dtype is not F32:
        return call(ctx, "quotient", x, y)
    return _mean(ctx, x, y) or call(ctx, "div", x, y)


def _mean(ctx: Context, x: Tensor, y: Tensor) -> Tensor | None:
    """Read a sum over its number of elements as the mean that it is."""
    number, node = ctx.g.graph.constants.get(y.value), x.value.node
    if number is None or number.ndim or node is None:
        return None
    shaped = node.op in ("reshape", "broadcast_to") and x.layout == tuple(range(x.rank))
    inner = node.operands[0].node if shaped else node
    if inner is not None and inner.op == "reduce_sum":
        count = inner.operands[0].type.size / inner.result.type.size
        if number == count:
            value = ctx.g.emit("reduce_mean", *inner.operands, **inner.attrs).result
            return Tensor(ctx.g.reshape(value, shape=x.value.shape) if shaped else value, x.layout)
    if node.op == "mul" and (pool := node.operands[0].node) is not None:
        factor = ctx.g.graph.constants.get(node.operands[1])
        if pool.op == "avg_pool2d" and factor is not None and np.array_equal(factor, number):
            return Tensor(pool.result, x.layout)
    return None


@primitive("clamp")
def clamp(ctx: Context, low: Tensor, x: Tensor, high: Tensor, **_: Any) -> Tensor:
    """Keep x between two bounds; on one of them nothing has a gradient."""
    known = [ctx.g.graph.constants.get(bound.value) for bound in (low, high)]
    if x.dtype is F32 and all(bound is not None and bound.ndim == 0 for bound in known):
        least, most = (float(bound) for bound in known if bound is not None)
        return Tensor(ctx.g.hardtanh(x.value, min=least, max=most), x.layout)
    bounded = call(ctx, "minimum", call(ctx, "maximum", x, low), high)
    if x.dtype is not F32 or not ctx.forward:
        return bounded
    above, within = call(ctx, "lt", high, x), call(ctx, "lt", low, high)
    below = call(ctx, "logical_and", call(ctx, "lt", x, low), within)
    inside = call(ctx, "logical_and", call(ctx, "lt", low, x), call(ctx, "lt", x, high))
    found = emit.unary("stop_gradient")(ctx.g, bounded)
    for here, value in ((inside, x), (below, low), (above, high)):
        found = emit.elementwise(ctx.g, "where", here, value, found)
    return found


@primitive("select_n")
def select_n(ctx: Context, which: Tensor, *cases: Tensor, **_: Any) -> Tensor:
    """Take the case of this number for each element."""
    if which.dtype is BOOL:
        return emit.elementwise(ctx.g, "where", which, cases[-1], cases[0])
    chosen = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        here = call(ctx, "le", which, number)
        chosen = emit.elementwise(ctx.g, "where", here, cases[number], chosen)
    return chosen


@primitive("convert_element_type")
def convert_element_type(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Cast; a float loses its fraction on the way to an integer."""
    return emit.cast(ctx.g, x, ctx.dtype)


_define_tables()

UNIFORM_AS_SCALAR = frozenset({*BINARY, "clamp", "div", "pow", "select_n"})
"""Primitives that read an array of equal elements as one number."""
