"""ONNX operators that work element by element, most of them rows of a table."""

import math
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import division
from pockengine.frontends.emit.meanings import alike, emitter
from pockengine.frontends.emit.power import short_power
from pockengine.frontends.layout import Tensor
from pockengine.frontends.onnx.declared import dtype_named
from pockengine.frontends.onnx.ops.registry import OnnxContext, onnx_op

MEANINGS = alike(
    """
    Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Log Mish Mul Neg
    Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh Where
    """
) | {
    "And": "logical_and",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "IsNaN": "is_nan",
    "Less": "lt",
    "LessOrEqual": "le",
    "Max": "greatest",
    "Mean": "average",
    "Min": "least",
    "Not": "logical_not",
    "Or": "logical_or",
    "PRelu": "prelu",
    "Xor": "logical_xor",
}
"""Meaning of operators without attributes."""

SETTINGS: dict[str, tuple[str, dict[str, str]]] = {
    "Celu": ("celu", {"alpha": "alpha"}),
    "Elu": ("elu", {"alpha": "alpha"}),
    "Gelu": ("gelu", {"approximate": "approximate"}),
    "LeakyRelu": ("leaky_relu", {"alpha": "negative_slope"}),
    "Selu": ("selu", {"alpha": "alpha", "gamma": "scale"}),
    "Swish": ("silu", {"alpha": "beta"}),
    "ThresholdedRelu": ("threshold", {"alpha": "threshold"}),
}
"""Meaning of operators with attributes, and the argument of each attribute."""


def _define(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @onnx_op(name)
    def rule(ctx: OnnxContext, *operands: Tensor) -> Tensor:
        return emitted(ctx.g, *operands)


def _define_with_settings(name: str, meaning: str, settings: dict[str, str]) -> None:
    emitted = emitter(meaning)

    @onnx_op(name, attributes=settings)
    def rule(ctx: OnnxContext, x: Tensor, **attributes: Any) -> Tensor:
        return emitted(ctx.g, x, **{settings[name]: value for name, value in attributes.items()})


for _name, _meaning in MEANINGS.items():
    _define(_name, _meaning)
for _name, (_meaning, _settings) in SETTINGS.items():
    _define_with_settings(_name, _meaning, _settings)


@onnx_op("IsInf")
def is_inf(
    ctx: OnnxContext, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1
) -> Tensor:
    """Whether x is infinite, with the requested signs."""
    g = ctx.g
    sides = [(detect_negative, -math.inf), (detect_positive, math.inf)]
    found = [emit.arithmetic(g, "eq", x, side) for detected, side in sides if detected]
    if not found:  # nothing is below -inf
        return emit.arithmetic(g, "lt", x, -math.inf)
    return found[0] if len(found) == 1 else emit.elementwise(g, "logical_or", *found)


@onnx_op("Identity")
def identity(ctx: OnnxContext, x: Tensor) -> Tensor:
    """Return x."""
    return x


@onnx_op("Div")
def divide(ctx: OnnxContext, a: Tensor, b: Tensor) -> Tensor:
    """a / b; of integers, rounded towards zero."""
    if a.dtype is not F32:
        return division.quotient(ctx.g, a, b, "trunc")
    return emit.elementwise(ctx.g, "div", a, b)


@onnx_op("Mod")
def mod(ctx: OnnxContext, a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Remainder of a division: with b's sign, or with a's for fmod."""
    return division.remainder(ctx.g, a, b, "trunc" if fmod else "floor")


@onnx_op("Shrink")
def shrink(ctx: OnnxContext, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Move numbers towards zero by the bias; those of at most lambd become zero."""
    g = ctx.g
    above, below = emit.arithmetic(g, "gt", x, lambd), emit.arithmetic(g, "lt", x, -lambd)
    less = emit.arithmetic(g, "sub", x, bias)
    more = emit.arithmetic(g, "add", x, bias)
    return emit.choose(g, above, less, emit.choose(g, below, more, 0.0))


@onnx_op("Pow")
def power(ctx: OnnxContext, x: Tensor, exponent: Tensor) -> Tensor:
    """x to a power; constant exponents become products if possible."""
    known = short_power(ctx.g, x, exponent)
    if known is not None:
        return known
    return emit.elementwise(ctx.g, "pow", x, emit.cast(ctx.g, exponent, F32))


@onnx_op("Cast")
def cast(
    ctx: OnnxContext, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    """Convert the elements."""
    return emit.cast(ctx.g, x, dtype_named(to))


@onnx_op("CastLike")
def cast_like(
    ctx: OnnxContext, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    """Convert the elements to the type of another tensor."""
    return emit.cast(ctx.g, x, like.dtype)


@onnx_op("Clip", static=(1, 2))
def clip(
    ctx: OnnxContext, x: Tensor, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> Tensor:
    """Limit the elements to a range known at compile time."""
    least = -math.inf if low is None else low.item()
    most = math.inf if high is None else high.item()
    return emit_activation.clip(ctx.g, "clamp", x, low=least, high=most)


@onnx_op("HardSigmoid")
def hard_sigmoid(ctx: OnnxContext, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Alpha x + beta, limited to [0, 1]."""
    line = emit.arithmetic(ctx.g, "add", emit.weighted(ctx.g, x, alpha), beta)
    return emit_activation.clip(ctx.g, "clamp", line, low=0.0, high=1.0)


@onnx_op("Dropout", static=(1, 2))
def dropout(
    ctx: OnnxContext,
    x: Tensor,
    amount: np.ndarray | None = None,
    mode: np.ndarray | None = None,
    *,
    ratio: float = 0.5,
    seed: int = 0,
) -> list[Tensor]:
    """Zero a share of the elements and scale the rest up, in training; also return the mask.

    The random numbers are ours, from the input `seed` of the step; the attribute is ignored.
    """
    share = float(ratio if amount is None else amount)
    active = share > 0 and (ctx.training or (mode is not None and bool(mode)))
    y = emit_activation.dropout(ctx.g, x, share, active)
    return [y, _mask(ctx, x, y, active)] if ctx.wants(1) else [y]


def _mask(ctx: OnnxContext, x: Tensor, y: Tensor, active: bool) -> Tensor:
    """Return which elements of x are kept in y, from the same random numbers."""
    if active:
        node = y.value.node
        assert node is not None  # emit_activation.dropout has just made it
        ones = ctx.g.broadcast_to(ctx.g.scalar(1.0), shape=x.value.shape)
        mask = ctx.g.dropout(ones, node.operands[1], **node.attrs)
        return emit.arithmetic(ctx.g, "gt", Tensor(mask, x.layout), 0.0)
    # Nothing is below -inf: the same everywhere, and unlike a constant it can be an output.
    return emit.unary("logical_not")(ctx.g, emit.arithmetic(ctx.g, "lt", x, float("-inf")))
