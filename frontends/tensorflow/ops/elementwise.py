"""TensorFlow operators that work element by element, most of them rows of a table."""

import math

import numpy as np

from pockengine.compiler.ir import BOOL, F32, Value
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit import Operand
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import gradient as emit_gradient
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, permute, plain
from pockengine.frontends.tensorflow.ops.registry import Context, tf_op

# TensorFlow operator -> our op
UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Asin": "asin",
    "Atan": "atan",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Erfc": "erfc",
    "Exp": "exp",
    "Expm1": "expm1",
    "Floor": "floor",
    "Log": "log",
    "Log1p": "log1p",
    "LogicalNot": "logical_not",
    "Neg": "neg",
    "Relu": "relu",
    "Rint": "round",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Square": "square",
    "Tan": "tan",
    "Tanh": "tanh",
}

ZERO_KEEPING = {
    "Inv": "reciprocal",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sqrt": "sqrt",
}
"""Operators whose gradient is 0 where the cotangent is, whatever the slope."""

BINARY = {
    "Add": "add",
    "AddV2": "add",
    "Atan2": "atan2",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterEqual": "ge",
    "Less": "lt",
    "LessEqual": "le",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "Mul": "mul",
    "NotEqual": "ne",
    "Sub": "sub",
}

IDENTITY = ("CheckNumerics", "EnsureShape", "Identity", "PreventGradient", "Snapshot")


def _apply(ctx: Context, op: str, *operands: Operand) -> Tensor:
    return emit.arithmetic(ctx.g, op, *operands)


def _define_unary(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return emit.unary(op)(ctx.g, x)


def _define_zero_keeping(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return emit_gradient.zero_keeping(ctx.g, op, x)


def _define_binary(name: str, op: str) -> None:
    @tf_op(name)
    def rule(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        return emit.elementwise(ctx.g, op, a, b)


for _name, _op in UNARY.items():
    _define_unary(_name, _op)
for _name, _op in ZERO_KEEPING.items():
    _define_zero_keeping(_name, _op)
for _name, _op in BINARY.items():
    _define_binary(_name, _op)


@tf_op(*IDENTITY)
def identity(ctx: Context, x: Tensor) -> Tensor:
    """Return x."""
    return x


@tf_op("IdentityN")
def identities(ctx: Context, *inputs: Tensor) -> list[Tensor]:
    """Return each input."""
    return list(inputs)


@tf_op("StopGradient")
def stop_gradient(ctx: Context, x: Tensor) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    return emit.unary("stop_gradient")(ctx.g, x) if emit.trains(ctx.g, x) else x


@tf_op("Div", "RealDiv")
def div(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a / b, of floats."""
    if a.dtype is not F32:
        raise Unsupported(f"division of {a.dtype.value}; cast to float first")
    return emit.elementwise(ctx.g, "div", a, b)


def _number(ctx: Context, x: Tensor) -> float | None:
    """Return the number that a constant of one element is."""
    data = ctx.g.graph.constants.get(x.value)
    return data.item() if data is not None and data.size == 1 else None


@tf_op("DivNoNan")
def div_no_nan(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    if _number(ctx, b):
        return emit.elementwise(ctx.g, "div", a, b)
    zero = _apply(ctx, "eq", b, 0.0)
    # A divisor of 1 keeps infinities, and the gradients that they would poison, out.
    safe = emit_activation.choose(ctx.g, zero, 1.0, b)
    return emit_activation.choose(ctx.g, zero, 0.0, emit.elementwise(ctx.g, "div", a, safe))


@tf_op("MulNoNan")
def mul_no_nan(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a b, and 0 where b is 0; the slopes are b and a there too."""
    g, product = ctx.g, emit.elementwise(ctx.g, "mul", a, b)
    assert product.value.node is not None
    first, second = product.value.node.operands

    def kept(factor: Value, other: Value) -> Value:
        zero = g.scalar(0.0)
        return g.where(g.eq(other, zero), zero, g.mul(factor, other))

    y = Tensor(kept(first, second), product.layout)
    if not (emit.trains(g, a) or emit.trains(g, b)):
        return y
    slopes = (first, lambda dy: kept(dy, second)), (second, lambda dy: kept(first, dy))
    return emit_gradient.with_gradient(g, y, *slopes)


@tf_op("Xlogy")
def xlogy(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
    """X log y, and 0 where x is 0."""
    zero = _apply(ctx, "eq", x, 0.0)
    log = emit.unary("log")(ctx.g, emit_activation.choose(ctx.g, zero, 1.0, y))
    return emit.elementwise(ctx.g, "mul", x, log)


@tf_op("Pow")
def power(ctx: Context, x: Tensor, exponent: Tensor) -> Tensor:
    """x to a power; small whole powers by products."""
    known = _number(ctx, exponent)
    if known == 2:
        return emit.unary("square")(ctx.g, x)
    if known == 3:
        return _apply(ctx, "mul", emit.unary("square")(ctx.g, x), x)
    if x.dtype is not F32:
        raise Unsupported(f"powers of {x.dtype.value}; cast to float first")
    if known == 0.5:
        return emit.unary("sqrt")(ctx.g, x)
    return emit_gradient.power(ctx.g, x, exponent, lambda value: _log_above(ctx, value))


def _log_above(ctx: Context, x: Value) -> Value:
    """Return the logarithm where there is one, else 0."""
    g, one = ctx.g, ctx.g.scalar(1.0)
    return g.log(g.where(g.gt(x, g.scalar(0.0)), x, one))


@tf_op("SquaredDifference")
def squared_difference(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """(a - b)^2."""
    return emit.unary("square")(ctx.g, emit.elementwise(ctx.g, "sub", a, b))


def _define_extreme(name: str, op: str, wins: str) -> None:
    @tf_op(name)
    def rule(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        """Choose; at a tie the gradient goes to a, where our op would halve it."""
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


@tf_op("AddN")
def add_n(ctx: Context, first: Tensor, *others: Tensor) -> Tensor:
    """Sum tensors of one shape."""
    for other in others:
        first = emit.elementwise(ctx.g, "add", first, other)
    return first


@tf_op("BiasAdd")
def bias_add(ctx: Context, x: Tensor, bias: Tensor, *, data_format: str = "NHWC") -> Tensor:
    """Add a bias of (C,) to the channels, which are last or, in NCHW, dimension 1."""
    if data_format == "NHWC" or x.rank < 3:
        return emit.elementwise(ctx.g, "add", x, bias)
    last = permute(x, (0, *range(2, x.rank), 1))
    y = emit.elementwise(ctx.g, "add", last, bias)
    return permute(y, (0, x.rank - 1, *range(1, x.rank - 1)))


@tf_op("Select", "SelectV2")
def select(ctx: Context, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Choose a or b for each element."""
    return emit.elementwise(ctx.g, "where", condition, a, b)


@tf_op("Cast")
def cast(ctx: Context, x: Tensor, *, DstT: np.dtype, Truncate: bool = False) -> Tensor:
    """Convert the elements."""
    dtype = known_dtype(DstT, f"a cast to {np.dtype(DstT).name}")
    if dtype is BOOL and x.dtype is not BOOL:
        return _apply(ctx, "ne", x, emit.scalar(ctx.g, 0, x.dtype))
    return emit.cast(ctx.g, x, dtype)


@tf_op("ClipByValue")
def clip(ctx: Context, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Limit the elements; on the bounds the gradient passes."""
    limits = _number(ctx, low), _number(ctx, high)
    if x.dtype is not F32 or None in limits:
        raise Unsupported("clipping of integers or to limits that are computed")
    return Tensor(ctx.g.clamp(x.value, min=limits[0], max=limits[1]), x.layout)


@tf_op("Relu6")
def relu6(ctx: Context, x: Tensor) -> Tensor:
    """x limited to [0, 6]; on the bounds the gradient is 0."""
    return Tensor(ctx.g.hardtanh(x.value, min=0.0, max=6.0), x.layout)


@tf_op("LeakyRelu")
def leaky_relu(ctx: Context, x: Tensor, *, alpha: float = 0.2) -> Tensor:
    """x above zero, else alpha x."""
    return emit_activation.leaky_relu(ctx.g, x, alpha)


@tf_op("Elu")
def elu(ctx: Context, x: Tensor) -> Tensor:
    """x above zero, else exp(x) - 1."""
    return emit_activation.elu(ctx.g, x, 1.0, 1.0, 1.0)


@tf_op("Selu")
def selu(ctx: Context, x: Tensor) -> Tensor:
    """Scale times elu, with the constants of arXiv 1706.02515; at 0 the gradient is the scale."""
    below = emit.unary("expm1")(ctx.g, _apply(ctx, "minimum", x, 0.0))
    above = _apply(ctx, "ge", x, 0.0)
    below = _apply(ctx, "mul", below, emit_activation.SELU_ALPHA)
    y = emit_activation.choose(ctx.g, above, x, below)
    return _apply(ctx, "mul", y, emit_activation.SELU_SCALE)


@tf_op("IsFinite")
def is_finite(ctx: Context, x: Tensor) -> Tensor:
    """Whether x is neither infinite nor no number."""
    return _apply(ctx, "lt", emit.unary("abs")(ctx.g, x), math.inf)


@tf_op("IsInf")
def is_infinite(ctx: Context, x: Tensor) -> Tensor:
    """Whether x is plus or minus infinity."""
    return _apply(ctx, "eq", emit.unary("abs")(ctx.g, x), math.inf)


@tf_op("IsNan")
def is_nan(ctx: Context, x: Tensor) -> Tensor:
    """Whether x is no number."""
    return emit.elementwise(ctx.g, "ne", x, x)


@tf_op("FloorMod")
def floor_mod(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
    """What is left of x after division by y, with the sign of y."""
    left = _apply(ctx, "rem", x, y)
    zero = emit.scalar(ctx.g, 0, x.dtype)
    other_sign = _apply(ctx, "ne", _apply(ctx, "lt", left, zero), _apply(ctx, "lt", y, zero))
    moved = _apply(ctx, "logical_and", _apply(ctx, "ne", left, zero), other_sign)
    return emit_activation.choose(ctx.g, moved, _apply(ctx, "add", left, y), left)


@tf_op("Softplus")
def softplus(ctx: Context, x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return emit_activation.softplus(ctx.g, x, 1.0, float("inf"))


@tf_op("Softsign")
def softsign(ctx: Context, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return emit_activation.softsign(ctx.g, x)


def _define_filled(name: str, number: int) -> None:
    @tf_op(name)
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return plain(ctx.g.broadcast_to(ctx.g.scalar(number, x.dtype), shape=x.shape))


_define_filled("ZerosLike", 0)
_define_filled("OnesLike", 1)
