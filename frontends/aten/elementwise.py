"""ATen operators that work element by element, most of them rows of a table."""

import math
from typing import Any

from pockengine.compiler.ir import F32, DType
from pockengine.frontends import emit
from pockengine.frontends.aten.registry import Context, aten
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.layout import Tensor

# ATen operator -> our op
UNARY = {
    "abs": "abs",
    "acos": "acos",
    "asin": "asin",
    "atan": "atan",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "log": "log",
    "log1p": "log1p",
    "logical_not": "logical_not",
    "neg": "neg",
    "reciprocal": "reciprocal",
    "relu": "relu",
    "round": "round",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "sign": "sign",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
    "trunc": "trunc",
}

BINARY = {
    "atan2": "atan2",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "maximum": "maximum",
    "minimum": "minimum",
    "max.other": "maximum",
    "min.other": "minimum",
}

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

# Operators that keep integers; PyTorch lifts them to floats for the others.
_INTEGER_TOO = {"abs", "logical_not", "neg", "relu", "sign", "square"}


def _define_unary(name: str, op: str) -> None:
    apply = emit.unary(op)

    @aten(f"{name}.default")
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return apply(ctx.g, x if op in _INTEGER_TOO else emit.cast(ctx.g, x, F32))


def _define_binary(name: str, op: str) -> None:
    @aten(name if "." in name else f"{name}.default")
    def rule(ctx: Context, x: Tensor, other: Tensor) -> Tensor:
        return emit.arithmetic(ctx.g, op, x, other)


def _define_comparison(name: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def rule(ctx: Context, x: Tensor, other: Operand) -> Tensor:
        return emit.arithmetic(ctx.g, name, x, other)


for _name, _op in UNARY.items():
    _define_unary(_name, _op)
for _name, _op in BINARY.items():
    _define_binary(_name, _op)
for _name in COMPARISONS:
    _define_comparison(_name)


@aten("add.Tensor", "add.Scalar")
def add(ctx: Context, x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x + alpha other."""
    return emit.arithmetic(ctx.g, "add", x, _times(ctx, other, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(ctx: Context, x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x - alpha other."""
    return emit.arithmetic(ctx.g, "sub", x, _times(ctx, other, alpha))


@aten("rsub.Scalar", "rsub.Tensor")
def rsub(ctx: Context, x: Tensor, other: Operand, alpha: Number) -> Tensor:
    """other - alpha x."""
    return emit.arithmetic(ctx.g, "sub", other, _times(ctx, x, alpha))


def _times(ctx: Context, operand: Operand, alpha: Number) -> Operand:
    if alpha == 1:
        return operand
    if isinstance(operand, Tensor):
        return emit.arithmetic(ctx.g, "mul", operand, alpha)
    return operand * alpha


@aten("mul.Tensor", "mul.Scalar")
def mul(ctx: Context, x: Tensor, other: Operand) -> Tensor:
    """x other."""
    return emit.arithmetic(ctx.g, "mul", x, other)


@aten("div.Tensor", "div.Scalar")
def div(ctx: Context, x: Tensor, other: Operand) -> Tensor:
    """x / other, in floats; a number divides exactly, as a constant operand."""
    return emit.arithmetic(ctx.g, "div", emit.cast(ctx.g, x, F32), other)


POWERS: dict[float, tuple[str, ...]] = {
    -1: ("reciprocal",),
    -0.5: ("rsqrt",),
    0.5: ("sqrt",),
    1: (),
    2: ("square",),
    4: ("square", "square"),
}
"""Powers that need no logarithm."""


@aten("pow.Tensor_Scalar")
def pow_number(ctx: Context, x: Tensor, exponent: Number) -> Tensor:
    """Raise x to a number."""
    x = emit.cast(ctx.g, x, F32)
    if exponent == 3:
        return emit.arithmetic(ctx.g, "mul", emit.unary("square")(ctx.g, x), x)
    if exponent not in POWERS:
        return emit.arithmetic(ctx.g, "pow", x, float(exponent))
    for op in POWERS[exponent]:
        x = emit.unary(op)(ctx.g, x)
    return x


@aten("pow.Tensor_Tensor", "pow.Scalar")
def pow_tensor(ctx: Context, x: Operand, exponent: Tensor) -> Tensor:
    """Raise one tensor or number to another tensor."""
    return emit.arithmetic(ctx.g, "pow", x, emit.cast(ctx.g, exponent, F32))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "prims.where.default")
def where(ctx: Context, condition: Tensor, x: Operand, other: Operand) -> Tensor:
    """x where the condition holds, else other."""
    return emit.elementwise(ctx.g, "where", condition, *emit.same_dtype(ctx.g, (x, other)))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Put the value where the mask holds."""
    if not isinstance(value, Tensor):
        value = emit.scalar(ctx.g, value, x.dtype)
    return emit.elementwise(ctx.g, "where", mask, emit.cast(ctx.g, value, x.dtype), x)


@aten("clamp.default")
def clamp(ctx: Context, x: Tensor, min: Number | None, max: Number | None) -> Tensor:
    """Limit to [min, max]; a missing bound is none."""
    low = -math.inf if min is None else float(min)
    high = math.inf if max is None else float(max)
    return _clip(ctx, "clamp", x, low, high)


@aten("clamp_min.default")
def clamp_min(ctx: Context, x: Tensor, min: Number) -> Tensor:
    """Limit from below."""
    return _clip(ctx, "clamp", x, float(min), math.inf)


@aten("clamp_max.default")
def clamp_max(ctx: Context, x: Tensor, max: Number) -> Tensor:
    """Limit from above."""
    return _clip(ctx, "clamp", x, -math.inf, float(max))


@aten("hardtanh.default")
def hardtanh(ctx: Context, x: Tensor, min_val: Number, max_val: Number) -> Tensor:
    """Limit to [min_val, max_val]; unlike clamp's, the gradient is zero on the bounds."""
    return _clip(ctx, "hardtanh", x, float(min_val), float(max_val))


@aten("relu6.default")
def relu6(ctx: Context, x: Tensor) -> Tensor:
    """Limit to [0, 6]."""
    return _clip(ctx, "hardtanh", x, 0.0, 6.0)


def _clip(ctx: Context, op: str, x: Tensor, low: float, high: float) -> Tensor:
    if x.dtype is not F32:
        return _clip_integers(ctx, x, low, high)
    return Tensor(ctx.g.emit(op, x.value, min=low, max=high).result, x.layout)


def _clip_integers(ctx: Context, x: Tensor, low: float, high: float) -> Tensor:
    for op, bound in (("maximum", low), ("minimum", high)):
        if math.isfinite(bound):
            if bound != int(bound):
                raise Unsupported("clamping integers to a fraction; convert to float32 first")
            x = emit.arithmetic(ctx.g, op, x, int(bound))
    return x


@aten("to.dtype", "to.dtype_layout", "to.device", "to.other", "_to_copy.default", "type_as.default")
def to(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Convert to the type that PyTorch says comes out; the device and layout are ours."""
    return emit.cast(ctx.g, x, _known(ctx.dtype))


def _known(dtype: DType | None) -> DType:
    if dtype is None:
        raise Unsupported("conversion to a type other than float32, int32, int64 and bool")
    return dtype


@aten(
    "alias.default",
    "clone.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "positive.default",
)
def same(ctx: Context, x: Tensor, **_: Any) -> Tensor:
    """Return the same numbers; how they lie in memory is ours to choose."""
    return Tensor(x.value, x.layout, x.copies)


@aten("copy.default")
def copy(ctx: Context, x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Take another tensor's numbers in x's shape and type."""
    return emit.broadcast(ctx.g, emit.cast(ctx.g, src, x.dtype), x.shape)


@aten("detach.default")
def detach(ctx: Context, x: Tensor) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    if not emit.trains(ctx.g, x):
        return Tensor(x.value, x.layout, x.copies)
    return emit.unary("stop_gradient")(ctx.g, x)
