"""ONNX operators that work element by element, most of them rows of a table."""

import numpy as np

from pockengine.compiler.ir import BOOL, F32, DType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import known_dtype
from pockengine.frontends.emit import Operand
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.ops.registry import Context, onnx_op

# ONNX operator -> our op
UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Asin": "asin",
    "Atan": "atan",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hard_swish",
    "Log": "log",
    "Neg": "neg",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}

BINARY = {
    "Add": "add",
    "And": "logical_and",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Mul": "mul",
    "Or": "logical_or",
    "Sub": "sub",
}

VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _apply(ctx: Context, op: str, *operands: Operand) -> Tensor:
    return emit.arithmetic(ctx.g, op, *operands)


def _define_unary(name: str, op: str) -> None:
    @onnx_op(name)
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return emit.unary(op)(ctx.g, x)


def _define_binary(name: str, op: str) -> None:
    @onnx_op(name)
    def rule(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
        return emit.elementwise(ctx.g, op, a, b)


def _define_variadic(name: str, op: str) -> None:
    @onnx_op(name)
    def rule(ctx: Context, first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = emit.elementwise(ctx.g, op, first, other)
        return first


for _name, _op in UNARY.items():
    _define_unary(_name, _op)
for _name, _op in BINARY.items():
    _define_binary(_name, _op)
for _name, _op in VARIADIC.items():
    _define_variadic(_name, _op)


@onnx_op("Mean")
def mean(ctx: Context, first: Tensor, *others: Tensor) -> Tensor:
    """Average tensors element by element."""
    for other in others:
        first = emit.elementwise(ctx.g, "add", first, other)
    return emit.weighted(ctx.g, first, 1 / (1 + len(others)))


@onnx_op("Identity")
def identity(ctx: Context, x: Tensor) -> Tensor:
    """Return x."""
    return x


@onnx_op("Div")
def div(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """a / b, of floats."""
    if a.dtype is not F32:
        raise Unsupported(f"division of {a.dtype.value}; cast to float first")
    return emit.elementwise(ctx.g, "div", a, b)


@onnx_op("Pow")
def power(ctx: Context, x: Tensor, exponent: Tensor) -> Tensor:
    """x to a power; squares and square roots of their own."""
    data = ctx.g.graph.constants.get(exponent.value)
    known = data.item() if data is not None and data.size == 1 else None
    if known == 2:
        return emit.unary("square")(ctx.g, x)
    if known == 0.5 and x.dtype is F32:
        return emit.unary("sqrt")(ctx.g, x)
    if x.dtype is not F32:
        raise Unsupported(f"powers of {x.dtype.value}; cast to float first")
    return emit.elementwise(ctx.g, "pow", x, emit.cast(ctx.g, exponent, F32))


@onnx_op("Where")
def where(ctx: Context, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Choose a or b for each element."""
    return emit.elementwise(ctx.g, "where", condition, a, b)


@onnx_op("Xor")
def xor(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """Return whether exactly one of two is true."""
    return _apply(ctx, "ne", emit.cast(ctx.g, a, DType.I32), emit.cast(ctx.g, b, DType.I32))


@onnx_op("Cast")
def cast(ctx: Context, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Convert the elements."""
    from onnx.helper import tensor_dtype_to_np_dtype

    numpy = tensor_dtype_to_np_dtype(to)
    dtype = known_dtype(numpy, f"a cast to {numpy}")
    if dtype is BOOL and x.dtype is not BOOL:
        return _apply(ctx, "ne", x, emit.scalar(ctx.g, 0, x.dtype))
    return emit.cast(ctx.g, x, dtype)


@onnx_op("CastLike")
def cast_like(
    ctx: Context, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    """Convert the elements to the type of another tensor."""
    if like.dtype is BOOL and x.dtype is not BOOL:
        return _apply(ctx, "ne", x, emit.scalar(ctx.g, 0, x.dtype))
    return emit.cast(ctx.g, x, like.dtype)


@onnx_op("Clip", static=(1, 2))
def clip(
    ctx: Context, x: Tensor, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> Tensor:
    """Limit the elements to a range known at compile time."""
    if x.dtype is not F32:
        raise Unsupported(f"clipping of {x.dtype.value}; cast to float first")
    limits = {"min": low, "max": high}
    known = {name: float(limit) for name, limit in limits.items() if limit is not None}
    return Tensor(ctx.g.clamp(x.value, **known), x.layout)


@onnx_op("Gelu")
def gelu(ctx: Context, x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Φ(x) with Φ the normal distribution, exact or by the tanh formula."""
    return emit_activation.gelu(ctx.g, x, approximate)


@onnx_op("Elu")
def elu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x above zero, else alpha (exp(x) - 1)."""
    return emit_activation.elu(ctx.g, x, alpha, 1.0, 1.0)


@onnx_op("Celu")
def celu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return emit_activation.celu(ctx.g, x, alpha)


@onnx_op("Selu")
def selu(
    ctx: Context,
    x: Tensor,
    *,
    alpha: float = emit_activation.SELU_ALPHA,
    gamma: float = emit_activation.SELU_SCALE,
) -> Tensor:
    """Gamma times elu."""
    return emit_activation.elu(ctx.g, x, alpha, gamma, 1.0)


@onnx_op("LeakyRelu")
def leaky_relu(ctx: Context, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """x above zero, else alpha x."""
    return emit_activation.leaky_relu(ctx.g, x, alpha)


@onnx_op("PRelu")
def prelu(ctx: Context, x: Tensor, slope: Tensor) -> Tensor:
    """x above zero, else slope x, with plain broadcasting."""
    positive = _apply(ctx, "gt", x, 0.0)
    return emit.elementwise(ctx.g, "where", positive, x, _apply(ctx, "mul", x, slope))


@onnx_op("Softplus")
def softplus(ctx: Context, x: Tensor) -> Tensor:
    """log(1 + exp(x))."""
    return emit_activation.softplus(ctx.g, x, 1.0, float("inf"))


@onnx_op("Softsign")
def softsign(ctx: Context, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return emit_activation.softsign(ctx.g, x)


@onnx_op("Mish")
def mish(ctx: Context, x: Tensor) -> Tensor:
    """x tanh(softplus(x))."""
    return emit_activation.mish(ctx.g, x)


@onnx_op("Swish")
def swish(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x sigmoid(alpha x)."""
    share = emit.unary("sigmoid")(ctx.g, emit.weighted(ctx.g, x, alpha))
    return _apply(ctx, "mul", x, share)


@onnx_op("ThresholdedRelu")
def thresholded_relu(ctx: Context, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x above alpha, else zero."""
    return emit_activation.threshold(ctx.g, x, alpha, 0.0)


@onnx_op("HardSigmoid")
def hard_sigmoid(ctx: Context, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Alpha x + beta, limited to [0, 1]."""
    line = _apply(ctx, "add", emit.weighted(ctx.g, x, alpha), beta)
    return Tensor(ctx.g.clamp(line.value, min=0.0, max=1.0), line.layout)


@onnx_op("Dropout", static=(1, 2))
def dropout(
    ctx: Context,
    x: Tensor,
    amount: np.ndarray | None = None,
    mode: np.ndarray | None = None,
    *,
    ratio: float = 0.5,
    seed: int = 0,
) -> list[Tensor]:
    """Zero a share of the elements and scale the rest up, when training; also give the mask.

    The random numbers are ours, from the input `seed` of the step; the attribute is ignored.
    """
    share = float(ratio if amount is None else amount)
    active = share > 0 and (ctx.training or (mode is not None and bool(mode)))
    y = emit_activation.dropout(ctx.g, x, share, active)
    return [y, _mask(ctx, x, y, share, active)] if ctx.wants(1) else [y]


def _mask(ctx: Context, x: Tensor, y: Tensor, share: float, active: bool) -> Tensor:
    """Return which elements of x are kept in y, from the same random numbers."""
    if active and share < 1:
        node = y.value.node
        assert node is not None  # emit_activation.dropout has just made it
        ones = ctx.g.broadcast_to(ctx.g.scalar(1.0), shape=x.value.shape)
        kept = ctx.g.dropout(ones, node.operands[1], **node.attrs)
        return _apply(ctx, "gt", Tensor(kept, x.layout), 0.0)
    # Nothing is below -inf: the same everywhere, and unlike a constant it can be an output.
    none = _apply(ctx, "lt", x, float("-inf"))
    return none if active else emit.unary("logical_not")(ctx.g, none)
