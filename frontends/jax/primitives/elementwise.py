"""Elementwise primitives."""

from typing import Any

import numpy as np

from pockengine.compiler.ir import BOOL, F32, I32, I64, DType, Value
from pockengine.frontends import emit
from pockengine.frontends.emit import bits
from pockengine.frontends.emit import gradient as emit_gradient
from pockengine.frontends.emit.halves import rounded
from pockengine.frontends.emit.meanings import alike, emitter, polygamma_of
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.power import whole_power
from pockengine.frontends.jax.primitives.emulated_types import INTEGERS, converted
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import Tensor, plain

UNARY = alike(
    """
    acos acosh asin asinh atan atanh ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor
    is_finite lgamma log log1p neg rsqrt sign sin sinh sqrt square tan tanh
    """
) | {"bessel_i0e": "i0e", "bessel_i1e": "i1e", "logistic": "sigmoid"}
"""Meaning of primitives of one operand."""

BINARY = alike("add atan2 eq ge gt igamma igammac le lt mul ne rem sub zeta") | {
    "add_any": "add",
    "igamma_grad_a": "igamma_da",
    "max": "maximum",
    "min": "minimum",
}
"""Meaning of primitives of two operands."""

LOGICAL = {name: f"logical_{name}" for name in ("and", "not", "or", "xor")}
"""Primitives that JAX has for the bits of integers too."""

SAME = ("copy", "copy_p", "device_put", "optimization_barrier", "sharding_constraint")


def _define_unary(name: str, meaning: str) -> None:
    emitted = emitter(meaning)
    primitive(name)(lambda ctx, x, **_: emitted(ctx.g, x))


def _define_binary(name: str, meaning: str) -> None:
    emitted = emitter(meaning)
    primitive(name)(lambda ctx, a, b, **_: emitted(ctx.g, *_lean(ctx, a, b)))


def _define_logical(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @primitive(name)
    def rule(ctx: JaxContext, *operands: Tensor, **_: Any) -> Tensor:
        if operands[0].dtype is BOOL:
            return emitted(ctx.g, *operands)
        if name == "not":
            return bits.inverted(ctx.g, *operands)
        return emit.elementwise(ctx.g, f"bit_{name}", *operands)


def _is_unsigned(ctx: JaxContext) -> bool:
    """Return whether the result is of uint32, which is stored in 64 bits."""
    return ctx.dtypes[0] == np.uint32


@primitive("shift_left")
def shift_left(ctx: JaxContext, x: Tensor, by: Tensor, **_: Any) -> Tensor:
    """Shift bits to the left."""
    return emit.elementwise(ctx.g, "shift_left", x, by)


@primitive("shift_right_arithmetic")
def shift_right_arithmetic(ctx: JaxContext, x: Tensor, by: Tensor, **_: Any) -> Tensor:
    """Shift bits to the right, the sign coming in."""
    if _is_unsigned(ctx):
        raise Unsupported("an arithmetic shift of uint32; use int32")
    return emit.elementwise(ctx.g, "shift_right", x, by)


@primitive("shift_right_logical")
def shift_right_logical(ctx: JaxContext, x: Tensor, by: Tensor, **_: Any) -> Tensor:
    """Shift bits to the right, zeros coming in."""
    if x.dtype is I64 and not _is_unsigned(ctx):
        raise Unsupported("a logical shift of int64; use int32")
    return bits.shifted_logically(ctx.g, _without_sign(ctx, x), by)


@primitive("population_count")
def population_count(ctx: JaxContext, x: Tensor, **_: Any) -> Tensor:
    """Count the bits that are one."""
    if x.dtype is I64 and not _is_unsigned(ctx):
        raise Unsupported("the bits of int64; use int32")
    return bits.counted(ctx.g, _without_sign(ctx, x))


def _without_sign(ctx: JaxContext, x: Tensor) -> Tensor:
    """Return the bits of integers of less than 32, from 0 on."""
    size = ctx.dtypes[0].itemsize
    if size >= 4:
        return x
    return emit.arithmetic(ctx.g, "bit_and", x, (1 << 8 * size) - 1)


for _name, _meaning in UNARY.items():
    _define_unary(_name, _meaning)
for _name, _meaning in BINARY.items():
    _define_binary(_name, _meaning)
for _name, _meaning in LOGICAL.items():
    _define_logical(_name, _meaning)


@primitive(*SAME)
def same(ctx: JaxContext, *operands: Tensor, **_: Any) -> list[Tensor]:
    """Return each operand."""
    return list(operands)


def _lean(ctx: JaxContext, *operands: Tensor) -> list[Tensor]:
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
def abs_(ctx: JaxContext, x: Tensor, **_: Any) -> Tensor:
    """|x|, whose gradient at zero is that of x."""
    trains = ctx.forward and x.dtype is F32 and emit.trains(ctx.g, x)
    if not trains or ctx.smooth or _positive(x):
        return emit.unary("abs")(ctx.g, x)
    below = emit.arithmetic(ctx.g, "lt", x, 0.0)
    return emit.elementwise(ctx.g, "where", below, emit.unary("neg")(ctx.g, x), x)


def _positive(x: Tensor) -> bool:
    """Return whether a tensor is a sum of powers of e, as in logsumexp."""
    node = x.value.node
    while node is not None and node.op in ("reshape", "reduce_sum"):
        node = node.operands[0].node
    return node is not None and node.op == "exp"


@primitive("cbrt")
def cube_root(ctx: JaxContext, x: Tensor, **_: Any) -> Tensor:
    """The cube root, whose slope is the root over 3 x, as in JAX."""
    g = ctx.g
    size = emit.unary("exp")(
        g, emit.weighted(g, emit.unary("log")(g, emit.unary("abs")(g, x)), 1 / 3)
    )
    y = emit.arithmetic(g, "mul", size, emit.unary("sign")(g, x))
    if not ctx.forward or not emit.trains(g, x):
        return y

    def formula(dy: Value) -> Value:
        return g.mul(dy, g.div(y.value, g.mul(x.value, g.scalar(3.0))))

    return emit_gradient.with_gradient(g, y, (x.value, formula))


@primitive("polygamma")
def polygamma(ctx: JaxContext, order: Tensor, x: Tensor, **_: Any) -> Tensor:
    """Differentiate log gamma order + 1 times."""
    return polygamma_of(ctx.g, order, x)


def _total_order(ctx: JaxContext, a: Tensor, b: Tensor, op: str) -> Tensor:
    """Compare with NaN above all numbers."""
    before = emit.elementwise(ctx.g, op, a, b)
    if a.dtype is not F32:
        return before
    nan = emitter("is_nan")
    top = nan(ctx.g, b)
    if op == "lt":
        top = emit.elementwise(ctx.g, "logical_and", emit.elementwise(ctx.g, "eq", a, a), top)
    return emit.elementwise(ctx.g, "logical_or", before, top)


primitive("lt_to")(lambda ctx, a, b, **_: _total_order(ctx, a, b, "lt"))
primitive("le_to")(lambda ctx, a, b, **_: _total_order(ctx, a, b, "le"))


@primitive("bitcast_convert_type")
def bitcast(ctx: JaxContext, x: Tensor, *, new_dtype: Any, **_: Any) -> Tensor:
    """Read the same bits as another type, through which no gradient flows."""
    if x.dtype is ctx.dtype:
        return stop_gradient(ctx, x)
    if x.dtype is F32 and _is_unsigned(ctx):
        return bits.unsigned(ctx.g, emit.unary("float_bits")(ctx.g, x))
    if x.dtype is I64 and ctx.dtype is F32:
        return emit.unary("bits_float")(ctx.g, emit.cast(ctx.g, x, I32))
    read = bits.read_as(ctx.g, x, ctx.dtype)
    if read is None:
        raise Unsupported(f"the bits of {x.dtype.value} as {new_dtype}; use arithmetic")
    return read


@primitive("stop_gradient")
def stop_gradient(ctx: JaxContext, x: Tensor, **_: Any) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    return emit.unary("stop_gradient")(ctx.g, x) if x.dtype is F32 and ctx.forward else x


@primitive("reduce_precision")
def reduce_precision(
    ctx: JaxContext, x: Tensor, *, exponent_bits: int, mantissa_bits: int, **_: Any
) -> Tensor:
    """Return x if it has at most the requested bits; otherwise round it to bf16."""
    if (exponent_bits, mantissa_bits) == (8, 7):
        return rounded(ctx.g, x, DType.BF16, forward=ctx.forward)
    if exponent_bits < 8 or mantissa_bits < 23:
        raise Unsupported(
            f"rounding to {exponent_bits} bits of exponent and {mantissa_bits} of mantissa, which "
            "the device does not have; leave it out, or round outside of the compiled function"
        )
    return x


@primitive("round")
def round_(ctx: JaxContext, x: Tensor, *, rounding_method: Any, **_: Any) -> Tensor:
    """Round to the nearest integer; halves to the even one, or away from zero."""
    if int(rounding_method) == 1:
        return emit.unary("round")(ctx.g, x)
    up = emit.unary("floor")(ctx.g, emit.arithmetic(ctx.g, "add", emit.unary("abs")(ctx.g, x), 0.5))
    return emit.arithmetic(ctx.g, "mul", emit.unary("sign")(ctx.g, x), up)


@primitive("integer_pow")
def integer_pow(ctx: JaxContext, x: Tensor, *, y: int, **_: Any) -> Tensor:
    """Raise to a power that is a small integer, by squaring."""
    power = whole_power(ctx.g, x, y)
    if y >= -1 or not ctx.forward or not emit.trains(ctx.g, x):
        return power

    def formula(dy: Value) -> Value:
        slope = ctx.g.mul(whole_power(ctx.g, x, y - 1).value, ctx.g.scalar(float(y)))
        return ctx.g.mul(dy, slope)

    # By the chain of squares it would be infinity times 0 at x = 0.
    return emit_gradient.with_gradient(ctx.g, power, (x.value, formula))


@primitive("pow")
def pow_(ctx: JaxContext, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """x^y; y may be an integer, and has no gradient then."""
    if x.dtype is not F32:
        raise Unsupported("powers of integers; cast them to float32")
    if y.dtype is not F32 or not ctx.forward:
        return emit.arithmetic(ctx.g, "pow", x, emit.cast(ctx.g, y, F32))
    g = ctx.g

    def log(value: Value) -> Value:
        return g.log(g.where(g.eq(value, g.scalar(0.0)), g.scalar(1.0), value))

    return emit_gradient.power(g, x, y, log)


@primitive("div")
def div(ctx: JaxContext, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """x / y; integers lose the fraction."""
    if x.dtype is not F32:
        return emit.arithmetic(ctx.g, "quotient", x, y)
    return _mean(ctx, x, y) or emit.arithmetic(ctx.g, "div", x, y)


def _mean(ctx: JaxContext, x: Tensor, y: Tensor) -> Tensor | None:
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
def clamp(ctx: JaxContext, low: Tensor, x: Tensor, high: Tensor, **_: Any) -> Tensor:
    """Clamp x between two bounds; on a bound there is no gradient."""
    known = [ctx.g.graph.constants.get(bound.value) for bound in (low, high)]
    if x.dtype is F32 and all(bound is not None and bound.ndim == 0 for bound in known):
        least, most = (float(bound) for bound in known if bound is not None)
        return Tensor(ctx.g.hardtanh(x.value, min=least, max=most), x.layout)
    bounded = emit.arithmetic(ctx.g, "minimum", emit.arithmetic(ctx.g, "maximum", x, low), high)
    if x.dtype is not F32 or not ctx.forward:
        return bounded
    above, within = emit.arithmetic(ctx.g, "lt", high, x), emit.arithmetic(ctx.g, "lt", low, high)
    below = emit.arithmetic(ctx.g, "logical_and", emit.arithmetic(ctx.g, "lt", x, low), within)
    inside = emit.arithmetic(
        ctx.g,
        "logical_and",
        emit.arithmetic(ctx.g, "lt", low, x),
        emit.arithmetic(ctx.g, "lt", x, high),
    )
    clamped = emit.unary("stop_gradient")(ctx.g, bounded)
    for here, value in ((inside, x), (below, low), (above, high)):
        clamped = emit.elementwise(ctx.g, "where", here, value, clamped)
    return clamped


@primitive("select_n")
def select_n(ctx: JaxContext, which: Tensor, *cases: Tensor, **_: Any) -> Tensor:
    """Take the case of this number for each element."""
    if which.dtype is BOOL:
        return emit.elementwise(ctx.g, "where", which, cases[-1], cases[0])
    chosen = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        here = emit.arithmetic(ctx.g, "le", which, number)
        chosen = emit.elementwise(ctx.g, "where", here, cases[number], chosen)
    return chosen


@primitive("convert_element_type")
def convert_element_type(ctx: JaxContext, x: Tensor, **_: Any) -> Tensor:
    """Cast; a float is truncated to an integer."""
    if ctx.dtypes[0] in INTEGERS:
        return converted(ctx.g, x, ctx.dtypes[0])
    return emit.cast(ctx.g, x, ctx.dtype)


UNIFORM_AS_SCALAR = frozenset(
    {*BINARY, "and", "clamp", "div", "le_to", "lt_to", "or", "polygamma", "pow", "select_n"}
    | {"shift_left", "shift_right_arithmetic", "shift_right_logical", "xor"}
)
"""Primitives that read an array of equal elements as one number."""
