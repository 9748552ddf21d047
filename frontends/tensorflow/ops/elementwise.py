"""TensorFlow operators that work element by element, most of them rows of a table."""

import numpy as np

from pockengine.compiler.ir import F32, Value
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import bits, division
from pockengine.frontends.emit import gradient as emit_gradient
from pockengine.frontends.emit.meanings import alike, emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.power import short_power
from pockengine.frontends.layout import Tensor, permute, plain
from pockengine.frontends.tensorflow.ops import emulated_types
from pockengine.frontends.tensorflow.ops.registry import TfContext, Truths, tf_op
from pockengine.frontends.tensorflow.ops.truths import converted

MEANINGS = alike(
    """
    Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor
    FloorMod IsFinite IsNan Log Log1p LogicalAnd LogicalNot LogicalOr Mul Neg Polygamma Relu Relu6
    Round Sigmoid Sign Sin Sinh Softplus Softsign Square SquaredDifference Sub Tan Tanh
    """
) | {
    "AddN": "sum",
    "AddV2": "add",
    "BesselI0": "i0",
    "BesselI0e": "i0e",
    "BesselI1": "i1",
    "BesselI1e": "i1e",
    "BitwiseAnd": "bit_and",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Digamma": "digamma",
    "Div": "divide",
    "Equal": "eq",
    "Erfinv": "erf_inv",
    "Greater": "gt",
    "GreaterEqual": "ge",
    "Igamma": "igamma",
    "Igammac": "igammac",
    "IgammaGradA": "igamma_da",
    "IsInf": "is_infinite",
    "Lgamma": "lgamma",
    "LeftShift": "shift_left",
    "Less": "lt",
    "LessEqual": "le",
    "NotEqual": "ne",
    "RealDiv": "divide",
    "RightShift": "shift_right",
    "Rint": "round",
    "Select": "where",
    "SelectV2": "where",
    "TruncateMod": "rem",
    "Zeta": "zeta",
}
"""Operators with the numbers and gradients of a shared meaning."""

ZERO_KEEPING = {
    "Inv": "reciprocal",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sqrt": "sqrt",
}
"""Operators whose gradient is 0 where the cotangent is 0, for any slope."""

IDENTITY = ("CheckNumerics", "EnsureShape", "Identity", "PreventGradient", "Snapshot")


def _define(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @tf_op(name)
    def rule(ctx: TfContext, *operands: Tensor) -> Tensor:
        return emitted(ctx.g, *operands)


def _define_zero_keeping(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, x: Tensor) -> Tensor:
        return emit_gradient.zero_keeping(ctx.g, op, x)


for _name, _meaning in MEANINGS.items():
    _define(_name, _meaning)
for _name, _op in ZERO_KEEPING.items():
    _define_zero_keeping(_name, _op)


@tf_op(*IDENTITY)
def identity(ctx: TfContext, x: Tensor) -> Tensor:
    """Return x."""
    return x


@tf_op("IdentityN")
def identities(ctx: TfContext, *inputs: Tensor) -> list[Tensor]:
    """Return each input."""
    return list(inputs)


@tf_op("StopGradient")
def stop_gradient(ctx: TfContext, x: Tensor) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    return emit.unary("stop_gradient")(ctx.g, x) if emit.trains(ctx.g, x) else x


@tf_op("DivNoNan")
def div_no_nan(ctx: TfContext, a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    if emit.number(ctx.g, b):
        return emit.elementwise(ctx.g, "div", a, b)
    zero = emit.arithmetic(ctx.g, "eq", b, 0.0)
    # A divisor of 1 avoids infinities, and NaN gradients.
    safe = emit.choose(ctx.g, zero, 1.0, b)
    return emit.choose(ctx.g, zero, 0.0, emit.elementwise(ctx.g, "div", a, safe))


@tf_op("MulNoNan")
def mul_no_nan(ctx: TfContext, a: Tensor, b: Tensor) -> Tensor:
    """a b, and 0 where b is 0; the slopes are b and a there too."""
    g, product = ctx.g, emit.elementwise(ctx.g, "mul", a, b)
    assert product.value.node is not None
    first, second = product.value.node.operands

    def product_or_zero(factor: Value, other: Value) -> Value:
        zero = g.scalar(0.0)
        return g.where(g.eq(other, zero), zero, g.mul(factor, other))

    y = Tensor(product_or_zero(first, second), product.layout)
    if not (emit.trains(g, a) or emit.trains(g, b)):
        return y
    slopes = (
        (first, lambda dy: product_or_zero(dy, second)),
        (second, lambda dy: product_or_zero(first, dy)),
    )
    return emit_gradient.with_gradient(g, y, *slopes)


@tf_op("Xlogy")
def xlogy(ctx: TfContext, x: Tensor, y: Tensor) -> Tensor:
    """X log y, and 0 where x is 0."""
    zero = emit.arithmetic(ctx.g, "eq", x, 0.0)
    log = emit.unary("log")(ctx.g, emit.choose(ctx.g, zero, 1.0, y))
    return emit.elementwise(ctx.g, "mul", x, log)


@tf_op("Xlog1py")
def xlog1py(ctx: TfContext, x: Tensor, y: Tensor) -> Tensor:
    """X log(1 + y), and 0 where x is 0."""
    zero = emit.arithmetic(ctx.g, "eq", x, 0.0)
    log = emit.unary("log1p")(ctx.g, emit.choose(ctx.g, zero, 0.0, y))
    return emit.elementwise(ctx.g, "mul", x, log)


@tf_op("Xdivy")
def xdivy(ctx: TfContext, x: Tensor, y: Tensor) -> Tensor:
    """X / y, and 0 where x is 0."""
    zero = emit.arithmetic(ctx.g, "eq", x, 0.0)
    return emit.elementwise(ctx.g, "div", x, emit.choose(ctx.g, zero, 1.0, y))


@tf_op("FloorDiv")
def floor_div(ctx: TfContext, x: Tensor, y: Tensor) -> Tensor:
    """x / y rounded down."""
    return division.quotient(ctx.g, x, y, "floor")


@tf_op("TruncateDiv")
def truncate_div(ctx: TfContext, x: Tensor, y: Tensor) -> Tensor:
    """x / y rounded towards zero."""
    return division.quotient(ctx.g, x, y, "trunc")


@tf_op("Bitcast")
def bitcast(ctx: TfContext, x: Tensor, *, type: np.dtype) -> Tensor:
    """Read the same bits as another type, through which no gradient flows."""
    target = known_dtype(type, f"bits as {np.dtype(type).name}")
    if target is x.dtype:
        return stop_gradient(ctx, x)
    read = bits.read_as(ctx.g, x, target)
    if read is None:
        raise Unsupported(f"the bits of {x.dtype.value} as {target.value}; use arithmetic")
    return read


@tf_op("Invert")
def invert(ctx: TfContext, x: Tensor) -> Tensor:
    """Turn each bit."""
    return bits.inverted(ctx.g, x)


@tf_op("Pow")
def power(ctx: TfContext, x: Tensor, exponent: Tensor) -> Tensor:
    """x to a power; constant exponents become products if possible."""
    known = short_power(ctx.g, x, exponent)
    if known is not None:
        return known
    return emit_gradient.power(ctx.g, x, exponent, lambda value: _log_above(ctx, value))


def _log_above(ctx: TfContext, x: Value) -> Value:
    """Return the logarithm where it is defined, else 0."""
    g, one = ctx.g, ctx.g.scalar(1.0)
    return g.log(g.where(g.gt(x, g.scalar(0.0)), x, one))


def _define_extreme(name: str, op: str, wins: str) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, a: Tensor, b: Tensor) -> Tensor:
        """Choose; at a tie the gradient goes to a, while our op would halve it."""
        g, y = ctx.g, emit.elementwise(ctx.g, op, a, b)
        if a.dtype is not F32 or not (emit.trains(g, a) or emit.trains(g, b)):
            return y
        assert y.value.node is not None
        first, second = y.value.node.operands
        won, zero = g.emit(wins, first, second).result, g.scalar(0.0)
        return emit_gradient.with_gradient(
            g,
            y,
            (first, lambda dy: g.where(won, dy, zero)),
            (second, lambda dy: g.where(won, zero, dy)),
        )


_define_extreme("Maximum", "maximum", "ge")
_define_extreme("Minimum", "minimum", "le")


@tf_op("BiasAdd")
def bias_add(ctx: TfContext, x: Tensor, bias: Tensor, *, data_format: str = "NHWC") -> Tensor:
    """Add a bias of (C,) to the channels, which are last or, in NCHW, dimension 1."""
    if data_format == "NHWC" or x.rank < 3:
        return emit.elementwise(ctx.g, "add", x, bias)
    last = permute(x, (0, *range(2, x.rank), 1))
    y = emit.elementwise(ctx.g, "add", last, bias)
    return permute(y, (0, x.rank - 1, *range(1, x.rank - 1)))


@tf_op("Cast")
def cast(
    ctx: TfContext, x: Tensor | Truths, *, DstT: np.dtype, Truncate: bool = False
) -> Tensor | Truths:
    """Convert the elements."""
    if isinstance(x, Truths):
        return converted(x, DstT)
    if np.dtype(DstT) == np.uint8:
        return emulated_types.as_byte(ctx.g, x)
    if np.dtype(DstT) == np.float64 or np.dtype(DstT).name in emulated_types.HALVES:
        return emit.cast(ctx.g, x, F32)
    return emit.cast(ctx.g, x, known_dtype(DstT, f"a cast to {np.dtype(DstT).name}"))


@tf_op("ClipByValue")
def clip(ctx: TfContext, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Limit the elements; on the bounds the gradient passes."""
    least, most = emit.number(ctx.g, low), emit.number(ctx.g, high)
    if least is None or most is None:
        raise Unsupported("clipping to limits that are computed; pass numbers")
    return emit_activation.clip(ctx.g, "clamp", x, low=float(least), high=float(most))


@tf_op("LeakyRelu")
def leaky_relu(ctx: TfContext, x: Tensor, *, alpha: float = 0.2) -> Tensor:
    """x above zero, else alpha x."""
    return emit_activation.leaky_relu(ctx.g, x, alpha)


@tf_op("Selu")
def selu(ctx: TfContext, x: Tensor) -> Tensor:
    """Scale times elu, with the constants of arXiv 1706.02515; at 0 the gradient is the scale."""
    below = emit.unary("expm1")(ctx.g, emit.arithmetic(ctx.g, "minimum", x, 0.0))
    above = emit.arithmetic(ctx.g, "ge", x, 0.0)
    below = emit.arithmetic(ctx.g, "mul", below, emit_activation.SELU_ALPHA)
    y = emit.choose(ctx.g, above, x, below)
    return emit.arithmetic(ctx.g, "mul", y, emit_activation.SELU_SCALE)


def _define_filled(name: str, number: int) -> None:
    @tf_op(name)
    def rule(ctx: TfContext, x: Tensor) -> Tensor:
        return plain(ctx.g.broadcast_to(ctx.g.scalar(number, x.dtype), shape=x.shape))


_define_filled("ZerosLike", 0)
_define_filled("OnesLike", 1)
