"""ATen operators that work element by element, most of them rows of a table."""

import math
from typing import Any

from pockengine.compiler.ir import BOOL, F32, DType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import ELSE
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import Context, aten

# ATen operator -> our op
UNARY = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "erfc": "erfc",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "log": "log",
    "log1p": "log1p",
    "neg": "neg",
    "reciprocal": "reciprocal",
    "relu": "relu",
    "round": "round",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
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
    "hypot": "hypot",
    "maximum": "maximum",
    "minimum": "minimum",
    "max.other": "maximum",
    "min.other": "minimum",
}

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

LOGICAL = {
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "logical_xor": "ne",
}
"""Operators on what is not zero."""


def _define_unary(name: str, op: str) -> None:
    apply = emit.unary(op)

    @aten(f"{name}.default")
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return apply(ctx.g, emit.cast(ctx.g, x, _lifted(ctx, x)))


def _lifted(ctx: Context, x: Tensor) -> DType:
    """Return the type that PyTorch computes in: integers become floats for most operators."""
    return ctx.dtype or x.dtype


def _define_logical(name: str, op: str) -> None:
    @aten(f"{name}.default")
    def rule(ctx: Context, *, x: Tensor, other: Tensor | None = None) -> Tensor:
        operands = [truth(ctx, each) for each in (x, other) if each is not None]
        return emit.elementwise(ctx.g, op, *operands)


def truth(ctx: Context, x: Tensor) -> Tensor:
    """Return where x is not zero."""
    return x if x.dtype is BOOL else emit.arithmetic(ctx.g, "ne", x, 0)


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
for _name, _op in LOGICAL.items():
    _define_logical(_name, _op)
for _name in COMPARISONS:
    _define_comparison(_name)


@aten("sign.default")
def sign(ctx: Context, x: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    y = emit.unary("sign")(ctx.g, x)
    return y if x.dtype is not F32 else emit_activation.choose(ctx.g, _same(ctx, x), y, 0.0)


def _same(ctx: Context, x: Tensor) -> Tensor:
    return emit.elementwise(ctx.g, "eq", x, x)


@aten("sinc.default")
def sinc(ctx: Context, x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 where that is 0 / 0."""
    angle = emit.weighted(ctx.g, emit.cast(ctx.g, x, F32), math.pi)
    zero = emit.arithmetic(ctx.g, "eq", emit.unary("square")(ctx.g, angle), 0.0)
    safe = emit_activation.choose(ctx.g, zero, 1.0, angle)
    ratio = emit.elementwise(ctx.g, "div", emit.unary("sin")(ctx.g, safe), safe)
    return emit_activation.choose(ctx.g, zero, 1.0, ratio)


@aten("logit.default")
def logit(ctx: Context, x: Tensor, eps: Number | None) -> Tensor:
    """log(x / (1 - x)), of x within [eps, 1 - eps]."""
    if eps is not None:
        x = Tensor(ctx.g.clamp(x.value, min=float(eps), max=1 - float(eps)), x.layout)
    rest = emit.unary("log1p")(ctx.g, emit.unary("neg")(ctx.g, x))
    return emit.elementwise(ctx.g, "sub", emit.unary("log")(ctx.g, x), rest)


def _define_times_log(name: str, log: str, offset: float) -> None:
    @aten(f"{name}.Tensor" if name == "xlogy" else f"{name}.default")
    def rule(ctx: Context, x: Operand, other: Operand) -> Tensor:
        """x log(other + offset): 0 where x is 0, unless other is NaN."""
        g = ctx.g
        x, other = emit.same_dtype(g, (x, other))
        nothing = emit.arithmetic(g, "eq", x, 0.0)
        negative = emit.arithmetic(g, "le", other, -offset)
        outside = emit.elementwise(g, "logical_and", nothing, negative)
        safe = emit_activation.choose(g, outside, 1.0 - offset, other)
        product = emit.elementwise(g, "mul", x, emit.unary(log)(g, safe))
        endless = emit.arithmetic(g, "eq", other, math.inf)
        both = emit.elementwise(g, "logical_and", nothing, endless)
        return emit_activation.choose(g, both, 0.0, product)


_define_times_log("xlogy", "log", 0.0)
_define_times_log("special_xlog1py", "log1p", 1.0)


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


@aten("pow.Tensor_Scalar", "pow_.Scalar")
def pow_number(ctx: Context, x: Tensor, exponent: Number) -> Tensor:
    """Raise x to a number."""
    if ctx.dtype is not F32:
        return _integer_power(ctx, emit.cast(ctx.g, x, _known(ctx.dtype)), exponent)
    x = emit.cast(ctx.g, x, F32)
    if exponent == 3:
        return emit.arithmetic(ctx.g, "mul", emit.unary("square")(ctx.g, x), x)
    if exponent not in POWERS:
        return emit.arithmetic(ctx.g, "pow", x, float(exponent))
    for op in POWERS[exponent]:
        x = emit.unary(op)(ctx.g, x)
    return x


def _integer_power(ctx: Context, x: Tensor, exponent: Number) -> Tensor:
    """Raise integers by squaring; the product wraps as PyTorch's does."""
    power = emit.broadcast(ctx.g, emit.scalar(ctx.g, 1, x.dtype), x.shape)
    rest = int(exponent)
    while rest:
        power = emit.elementwise(ctx.g, "mul", power, x) if rest % 2 else power
        x, rest = emit.unary("square")(ctx.g, x), rest // 2
    return power


@aten("pow.Tensor_Tensor", "pow_.Tensor", "pow.Scalar")
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
        raise Unsupported(f"conversion to {ELSE}")
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
