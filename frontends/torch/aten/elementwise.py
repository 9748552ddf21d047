"""ATen operators that work element by element, most of them rows of a table."""

import math
from typing import Any

from pockengine.compiler.ir import BOOL, F32, DType
from pockengine.frontends import emit
from pockengine.frontends.dtypes import ELSE
from pockengine.frontends.emit import Number, Operand, meanings
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit.meanings import alike, emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.emit.power import known_power
from pockengine.frontends.layout import Tensor
from pockengine.frontends.torch.aten.registry import AtenContext, aten
from pockengine.frontends.torch.ties import share_of_tie

UNARY = alike(
    """
    abs acos acosh asin asinh atan atanh ceil celu cos cosh digamma elu erf erfc exp exp2 expm1
    floor gelu i0 leaky_relu lgamma log log10 log1p log2 log_sigmoid mish neg reciprocal relu relu6
    round rsqrt selu sigmoid silu sin sinh softplus sqrt square tan tanh threshold trunc
    """
) | {
    "erfinv": "erf_inv",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_i1e": "i1e",
}
"""Meaning of operators of one tensor, which is converted to the result's type."""

LOGICAL = alike("logical_and logical_not logical_or logical_xor")
"""Operators on nonzero elements."""

NUMBERS_TOO = alike("eq ge gt le lt mul ne") | {"fmod": "rem", "remainder": "floor_mod"}
"""Operators of a tensor and another one, or a number."""

_PAIRS = ("atan2", "hypot", "igamma", "igammac", "maximum", "minimum")

BINARY = {
    **{f"{name}.default": name for name in _PAIRS},
    **{f"{name}.Scalar": meaning for name, meaning in NUMBERS_TOO.items()},
    **{f"{name}.Tensor": meaning for name, meaning in NUMBERS_TOO.items()},
    "max.other": "maximum",
    "min.other": "minimum",
}
"""Meaning of operators of two tensors or numbers, which are promoted to one type."""


def _define_unary(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @aten(f"{name}.default")
    def rule(ctx: AtenContext, x: Tensor, **settings: Any) -> Tensor:
        return emitted(ctx.g, emit.cast(ctx.g, x, ctx.dtype or x.dtype), **settings)


def _define_binary(overload: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @aten(overload)
    def rule(ctx: AtenContext, x: Operand, other: Operand) -> Tensor:
        return emitted(ctx.g, *emit.same_dtype(ctx.g, (x, other)))


def _define_logical(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @aten(f"{name}.default")
    def rule(ctx: AtenContext, x: Tensor, other: Tensor | None = None) -> Tensor:
        operands = [truth(ctx, operand) for operand in (x, other) if operand is not None]
        return emitted(ctx.g, *operands)


def truth(ctx: AtenContext, x: Tensor) -> Tensor:
    """Return where x is not zero."""
    return x if x.dtype is BOOL else emit.arithmetic(ctx.g, "ne", x, 0)


for _name, _meaning in UNARY.items():
    _define_unary(_name, _meaning)
for _overload, _meaning in BINARY.items():
    _define_binary(_overload, _meaning)
for _name, _meaning in LOGICAL.items():
    _define_logical(_name, _meaning)


@aten("sign.default")
def sign(ctx: AtenContext, x: Tensor) -> Tensor:
    """-1, 0 or 1; of NaN 0."""
    y = emit.unary("sign")(ctx.g, x)
    return y if x.dtype is not F32 else emit.choose(ctx.g, _same(ctx, x), y, 0.0)


def _same(ctx: AtenContext, x: Tensor) -> Tensor:
    return emit.elementwise(ctx.g, "eq", x, x)


@aten("angle.default")
def angle(ctx: AtenContext, x: Tensor) -> Tensor:
    """Return pi for negative x, NaN for NaN, else 0; its gradient is 0."""
    x = detach(ctx, emit.cast(ctx.g, x, F32))
    sign = emit.choose(ctx.g, emit.arithmetic(ctx.g, "lt", x, 0.0), math.pi, 0.0)
    return emit.choose(ctx.g, _same(ctx, x), sign, x)


@aten("sinc.default")
def sinc(ctx: AtenContext, x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 where that is 0 / 0."""
    angle = emit.weighted(ctx.g, emit.cast(ctx.g, x, F32), math.pi)
    zero = emit.arithmetic(ctx.g, "eq", emit.unary("square")(ctx.g, angle), 0.0)
    safe = emit.choose(ctx.g, zero, 1.0, angle)
    ratio = emit.elementwise(ctx.g, "div", emit.unary("sin")(ctx.g, safe), safe)
    return emit.choose(ctx.g, zero, 1.0, ratio)


@aten("special_zeta.default")
def zeta(ctx: AtenContext, x: Tensor, other: Tensor) -> Tensor:
    """Sum (k + other)⁻ˣ for k from 0 on."""
    return emit.arithmetic(ctx.g, "zeta", x, other)


@aten("polygamma.default")
def polygamma(ctx: AtenContext, n: int, x: Tensor) -> Tensor:
    """Return the derivative of order n of digamma."""
    return meanings.polygamma(ctx.g, n, emit.cast(ctx.g, x, F32))


@aten("logit.default")
def logit(ctx: AtenContext, x: Tensor, eps: Number | None) -> Tensor:
    """log(x / (1 - x)), of x within [eps, 1 - eps]."""
    if eps is not None:
        x = Tensor(ctx.g.clamp(x.value, min=float(eps), max=1 - float(eps)), x.layout)
    complement = emit.unary("log1p")(ctx.g, emit.unary("neg")(ctx.g, x))
    return emit.elementwise(ctx.g, "sub", emit.unary("log")(ctx.g, x), complement)


def _define_times_log(name: str, log: str, offset: float) -> None:
    @aten(f"{name}.Tensor" if name == "xlogy" else f"{name}.default")
    def rule(ctx: AtenContext, x: Operand, other: Operand) -> Tensor:
        """x log(other + offset): 0 where x is 0, unless other is NaN."""
        g = ctx.g
        x, other = emit.same_dtype(g, (x, other))
        nothing = emit.arithmetic(g, "eq", x, 0.0)
        negative = emit.arithmetic(g, "le", other, -offset)
        outside = emit.elementwise(g, "logical_and", nothing, negative)
        safe = emit.choose(g, outside, 1.0 - offset, other)
        product = emit.elementwise(g, "mul", x, emit.unary(log)(g, safe))
        endless = emit.arithmetic(g, "eq", other, math.inf)
        both = emit.elementwise(g, "logical_and", nothing, endless)
        return emit.choose(g, both, 0.0, product)


_define_times_log("xlogy", "log", 0.0)
_define_times_log("special_xlog1py", "log1p", 1.0)


@aten("add.Tensor", "add.Scalar")
def add(ctx: AtenContext, x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x + alpha other."""
    return emit.arithmetic(ctx.g, "add", x, _times(ctx, other, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(ctx: AtenContext, x: Tensor, other: Operand, alpha: Number = 1) -> Tensor:
    """x - alpha other."""
    return emit.arithmetic(ctx.g, "sub", x, _times(ctx, other, alpha))


@aten("rsub.Scalar", "rsub.Tensor")
def rsub(ctx: AtenContext, x: Tensor, other: Operand, alpha: Number) -> Tensor:
    """other - alpha x."""
    return emit.arithmetic(ctx.g, "sub", other, _times(ctx, x, alpha))


def _times(ctx: AtenContext, operand: Operand, alpha: Number) -> Operand:
    if alpha == 1:
        return operand
    if isinstance(operand, Tensor):
        return emit.arithmetic(ctx.g, "mul", operand, alpha)
    return operand * alpha


@aten("div.Tensor", "div.Scalar")
def div(ctx: AtenContext, x: Tensor, other: Operand) -> Tensor:
    """x / other, in floats; a number divides exactly, as a constant operand."""
    return emit.arithmetic(ctx.g, "div", emit.cast(ctx.g, x, F32), other)


@aten("pow.Tensor_Scalar", "pow_.Scalar")
def pow_number(ctx: AtenContext, x: Tensor, exponent: Number) -> Tensor:
    """Raise x to a number."""
    x = emit.cast(ctx.g, x, _known(ctx.dtype))
    if exponent == -0.5:  # minus infinity at -0 in PyTorch, where other frameworks have infinity
        return emit.unary("rsqrt")(ctx.g, x)
    return known_power(ctx.g, x, exponent) or emit.arithmetic(ctx.g, "pow", x, float(exponent))


@aten("pow.Tensor_Tensor", "pow_.Tensor", "pow.Scalar")
def pow_tensor(ctx: AtenContext, x: Operand, exponent: Tensor) -> Tensor:
    """Raise one tensor or number to another tensor."""
    return emit.arithmetic(ctx.g, "pow", x, emit.cast(ctx.g, exponent, F32))


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "prims.where.default")
def where(ctx: AtenContext, condition: Tensor, x: Operand, other: Operand) -> Tensor:
    """x where the condition holds, else other."""
    return emit.elementwise(ctx.g, "where", condition, *emit.same_dtype(ctx.g, (x, other)))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: AtenContext, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Write the value where the mask is true."""
    if not isinstance(value, Tensor):
        value = emit.scalar(ctx.g, value, x.dtype)
    return emit.elementwise(ctx.g, "where", mask, emit.cast(ctx.g, value, x.dtype), x)


@aten("clamp.default")
def clamp(ctx: AtenContext, x: Tensor, min: Number | None, max: Number | None) -> Tensor:
    """Clamp to [min, max]; either bound may be missing."""
    low = -math.inf if min is None else float(min)
    high = math.inf if max is None else float(max)
    return emit_activation.clip(ctx.g, _clamp(), x, low=low, high=high)


@aten("clamp_min.default")
def clamp_min(ctx: AtenContext, x: Tensor, min: Number) -> Tensor:
    """Limit from below."""
    return emit_activation.clip(ctx.g, _clamp(), x, low=float(min), high=math.inf)


@aten("clamp_max.default")
def clamp_max(ctx: AtenContext, x: Tensor, max: Number) -> Tensor:
    """Limit from above."""
    return emit_activation.clip(ctx.g, _clamp(), x, low=-math.inf, high=float(max))


def _clamp() -> str:
    """Return the op with the gradient of PyTorch's clamp on the bounds."""
    return "clamp" if share_of_tie("number") else "hardtanh"


@aten("hardtanh.default")
def hardtanh(ctx: AtenContext, x: Tensor, min_val: Number, max_val: Number) -> Tensor:
    """Limit to [min_val, max_val]; unlike clamp's, the gradient is zero on the bounds."""
    return emit_activation.clip(ctx.g, "hardtanh", x, low=float(min_val), high=float(max_val))


@aten("to.dtype", "to.dtype_layout", "to.device", "to.other", "_to_copy.default", "type_as.default")
def to(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Convert to PyTorch's result type; device and layout are ignored."""
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
def same(ctx: AtenContext, x: Tensor, **_: Any) -> Tensor:
    """Return the same numbers; the memory format is ignored."""
    return Tensor(x.value, x.layout, x.copies)


@aten("copy.default")
def copy(ctx: AtenContext, x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Return another tensor's numbers in x's shape and type."""
    return emit.broadcast(ctx.g, emit.cast(ctx.g, src, x.dtype), x.shape)


@aten("detach.default")
def detach(ctx: AtenContext, x: Tensor) -> Tensor:
    """Return the same numbers, through which no gradient flows."""
    if not emit.trains(ctx.g, x):
        return Tensor(x.value, x.layout, x.copies)
    return emit.unary("stop_gradient")(ctx.g, x)
