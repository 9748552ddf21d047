"""What PyTorch's own definitions of operators are made of besides ATen, and rare mathematics.

`decompose.py` falls back on these definitions; some end in `prims`.
"""

import math
from collections.abc import Callable, Sequence

from pockengine.compiler.ir import BOOL, F32
from pockengine.frontends import emit
from pockengine.frontends.dtypes import ELSE
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import division as emit_division
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.reduction import var
from pockengine.frontends.torch.aten.registry import Context, aten

# prims and ATen's names -> factor inside, our op, factor outside
SCALED = {
    "exp2": (math.log(2), "exp", 1.0),
    "log10": (1.0, "log", 1 / math.log(10)),
    "log2": (1.0, "log", 1 / math.log(2)),
}

KINDS = ("Tensor", "Scalar")

LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "ne"}


def _apply(ctx: Context, op: str, *operands: Operand) -> Tensor:
    return emit.arithmetic(ctx.g, op, *operands)


def _unary(ctx: Context, op: str, x: Tensor) -> Tensor:
    return emit.unary(op)(ctx.g, x)


def _define_unary(name: str, formula: Callable[[Context, Tensor], Tensor]) -> None:
    @aten(f"{name}.default")
    def rule(ctx: Context, x: Tensor) -> Tensor:
        return formula(ctx, emit.cast(ctx.g, x, F32))


def _scaled(name: str) -> Callable[[Context, Tensor], Tensor]:
    inside, op, outside = SCALED[name]

    def formula(ctx: Context, x: Tensor) -> Tensor:
        y = _unary(ctx, op, emit.weighted(ctx.g, x, inside))
        return emit.weighted(ctx.g, y, outside)

    return formula


for _name in SCALED:
    _define_unary(_name, _scaled(_name))


def _define_remainder(name: str, rounding: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def rule(ctx: Context, x: Tensor, other: Operand) -> Tensor:
        return emit_division.remainder(ctx.g, x, other, rounding)


for _name, _rounding in {"fmod": "trunc", "remainder": "floor"}.items():
    _define_remainder(_name, _rounding)


def _define_ignoring_nan(name: str, comparison: str) -> None:
    @aten(f"{name}.default")
    def rule(ctx: Context, x: Tensor, other: Tensor) -> Tensor:
        nan = _apply(ctx, "ne", other, other)
        wins = _apply(ctx, "logical_or", _apply(ctx, comparison, x, other), nan)
        return emit.elementwise(ctx.g, "where", wins, x, other)


_define_ignoring_nan("fmax", "ge")
_define_ignoring_nan("fmin", "le")


def _define_logical(name: str, op: str) -> None:
    short = name.removeprefix("bitwise_")

    @aten(f"{name}.Tensor", *(f"__{by}{short}__.{kind}" for by in ("", "i") for kind in KINDS))
    def rule(ctx: Context, x: Tensor, other: Operand) -> Tensor:
        if ctx.dtype is not BOOL:
            raise Unsupported("operations on the bits of integers; use booleans")
        return _apply(ctx, op, x, other)


for _name, _op in LOGICAL.items():
    _define_logical(_name, _op)


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_and_round(ctx: Context, x: Tensor, other: Operand, rounding_mode: str | None) -> Tensor:
    """x / other, rounded down or towards zero."""
    if rounding_mode is None:
        return _apply(ctx, "div", emit.cast(ctx.g, x, F32), other)
    return emit_division.quotient(ctx.g, x, other, rounding_mode)


@aten("prims.convert_element_type.default")
def convert(ctx: Context, x: Tensor, dtype: object) -> Tensor:
    """Convert to the type that PyTorch says comes out."""
    if ctx.dtype is None:
        raise Unsupported(f"conversion to {ELSE}")
    return emit.cast(ctx.g, x, ctx.dtype)


@aten("prims.broadcast_in_dim.default")
def broadcast_in_dim(
    ctx: Context, x: Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Tensor:
    """Put x's dimensions at the given places of the result and repeat it along the others."""
    wide = [1] * len(shape)
    for place, size in zip(broadcast_dimensions, x.shape, strict=True):
        wide[place] = size
    return emit.broadcast(ctx.g, reshape(ctx.g, x, tuple(wide)), tuple(shape))


def _define_reduction(name: str, op: str) -> None:
    @aten(f"prims.{name}.default")
    def rule(ctx: Context, x: Tensor, dims: Sequence[int] | None, **_: object) -> Tensor:
        return emit.reduce(ctx.g, op, x, dims or (), keepdims=False)


for _name in ("sum", "prod"):
    _define_reduction(_name, f"reduce_{_name}")
for _name in ("max", "min"):
    _define_reduction(f"a{_name}", f"reduce_{_name}")


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(ctx: Context, x: Tensor, other: Operand) -> Tensor:
    """|x| with the other's sign."""
    size = _unary(ctx, "abs", emit.cast(ctx.g, x, F32))
    if not isinstance(other, Tensor):
        return _unary(ctx, "neg", size) if math.copysign(1.0, other) < 0 else size
    return emit_activation.choose(ctx.g, signbit(ctx, other), _unary(ctx, "neg", size), size)


@aten("signbit.default")
def signbit(ctx: Context, x: Tensor) -> Tensor:
    """Whether x is below zero, or a negative zero."""
    below = _apply(ctx, "lt", x, 0)
    if x.dtype is not F32:
        return below
    negative_zero = _apply(ctx, "eq", _unary(ctx, "reciprocal", x), -math.inf)
    return _apply(ctx, "logical_or", below, negative_zero)


@aten("var_mean.correction")
def var_mean(
    ctx: Context,
    x: Tensor,
    dim: Sequence[int] | None,
    correction: Number | None,
    keepdim: bool,
) -> list[Tensor]:
    """Variance and mean over some dimensions."""
    mean = emit.reduce(ctx.g, "reduce_mean", x, dim or (), keepdim)
    return [var(ctx, x, dim, correction, keepdim), mean]


@aten("prims.var.default")
def variance(
    ctx: Context, x: Tensor, dims: Sequence[int] | None, correction: float, **_: object
) -> Tensor:
    """Mean squared deviation with n - correction in place of n."""
    return var(ctx, x, dims, correction)
