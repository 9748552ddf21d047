"""What PyTorch's own definitions of operators are made of besides ATen, and rare mathematics.

`torch_decompose.py` falls back on these definitions; some end in `prims`.
"""

import math
from collections.abc import Callable, Sequence

from pockengine.compiler.ir import BOOL, F32
from pockengine.frontends import emit
from pockengine.frontends.aten.reduction import var
from pockengine.frontends.aten.registry import Context, aten
from pockengine.frontends.emit import Number, Operand
from pockengine.frontends.emit_nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape

# prims and ATen's names -> factor inside, our op, factor outside
SCALED = {
    "exp2": (math.log(2), "exp", 1.0),
    "log10": (1.0, "log", 1 / math.log(10)),
    "log2": (1.0, "log", 1 / math.log(2)),
}

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


def atanh(ctx: Context, x: Tensor) -> Tensor:
    """(log(1 + x) - log(1 - x)) / 2."""
    low = _unary(ctx, "log1p", _unary(ctx, "neg", x))
    return _apply(ctx, "mul", _apply(ctx, "sub", _unary(ctx, "log1p", x), low), 0.5)


def acosh(ctx: Context, x: Tensor) -> Tensor:
    """log(x + sqrt(x² - 1))."""
    root = _unary(ctx, "sqrt", _apply(ctx, "sub", _unary(ctx, "square", x), 1.0))
    return _unary(ctx, "log", _apply(ctx, "add", x, root))


def asinh(ctx: Context, x: Tensor) -> Tensor:
    """log(x + sqrt(x² + 1)), from |x| so that no digits cancel."""

    def right(y: Tensor) -> Tensor:
        y = Tensor(ctx.g.clamp(y.value, min=0.0, max=math.inf), y.layout)
        square = _unary(ctx, "square", y)
        root = _unary(ctx, "sqrt", _apply(ctx, "add", square, 1.0))
        tail = _apply(ctx, "div", square, _apply(ctx, "add", root, 1.0))
        return _unary(ctx, "log1p", _apply(ctx, "add", y, tail))

    left = _unary(ctx, "neg", right(_unary(ctx, "neg", x)))
    return emit.elementwise(ctx.g, "where", _apply(ctx, "lt", x, 0.0), left, right(x))


def erfc(ctx: Context, x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return _apply(ctx, "sub", 1.0, _unary(ctx, "erf", x))


for _name in SCALED:
    _define_unary(_name, _scaled(_name))
for _name, _formula in {"acosh": acosh, "asinh": asinh, "atanh": atanh, "erfc": erfc}.items():
    _define_unary(_name, _formula)


def _integer_quotient(ctx: Context, x: Tensor, other: Operand, rounding: str) -> Tensor:
    """Divide integers, rounding down or towards zero.

    A float has 24 digits of the quotient, dividing what remains gives the rest; it is off by one at
    most, which the last remainder tells.
    """
    x, by = emit.same_dtype(ctx.g, (x, other))

    def rough(rest: Tensor) -> Tensor:
        ratio = _apply(ctx, "div", emit.cast(ctx.g, rest, F32), emit.cast(ctx.g, by, F32))
        return emit.cast(ctx.g, _unary(ctx, "floor", ratio), x.dtype)

    guess = rough(x)
    guess = _apply(ctx, "add", guess, rough(_apply(ctx, "sub", x, _apply(ctx, "mul", guess, by))))
    rest = _apply(ctx, "sub", x, _apply(ctx, "mul", guess, by))
    wrong_side = _apply(ctx, "lt", _apply(ctx, "mul", rest, by), 0)
    too_far = _apply(ctx, "ge", _apply(ctx, "mul", _apply(ctx, "sub", rest, by), by), 0)
    guess = _apply(ctx, "sub", guess, emit.cast(ctx.g, wrong_side, x.dtype))
    over = _apply(ctx, "logical_and", too_far, _unary(ctx, "logical_not", wrong_side))
    floor = _apply(ctx, "add", guess, emit.cast(ctx.g, over, x.dtype))
    if rounding == "floor":
        return floor
    left = _apply(ctx, "ne", _apply(ctx, "mul", floor, by), x)
    up = _apply(ctx, "logical_and", _apply(ctx, "lt", floor, 0), left)
    return _apply(ctx, "add", floor, emit.cast(ctx.g, up, x.dtype))


def _define_remainder(name: str, rounding: str) -> None:
    @aten(f"{name}.Tensor", f"{name}.Scalar")
    def rule(ctx: Context, x: Tensor, other: Operand) -> Tensor:
        if ctx.dtype is not F32:
            quotient = _integer_quotient(ctx, x, other, rounding)
        else:
            quotient = _unary(ctx, rounding, _apply(ctx, "div", emit.cast(ctx.g, x, F32), other))
        return _apply(ctx, "sub", x, _apply(ctx, "mul", quotient, other))


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


@aten("hypot.default")
def hypot(ctx: Context, x: Tensor, other: Tensor) -> Tensor:
    """sqrt(x² + other²)."""
    squares = (_unary(ctx, "square", each) for each in (x, other))
    return _unary(ctx, "sqrt", _apply(ctx, "add", *squares))


def _define_logical(name: str, op: str) -> None:
    @aten(f"{name}.Tensor")
    def rule(ctx: Context, x: Tensor, other: Tensor) -> Tensor:
        if ctx.dtype is not BOOL:
            raise Unsupported("operations on the bits of integers; use booleans")
        return _apply(ctx, op, x, other)


for _name, _op in LOGICAL.items():
    _define_logical(_name, _op)


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_and_round(ctx: Context, x: Tensor, other: Operand, rounding_mode: str | None) -> Tensor:
    """x / other, rounded down or towards zero."""
    quotient = _apply(ctx, "div", emit.cast(ctx.g, x, F32), other)
    if rounding_mode is None:
        return quotient
    if ctx.dtype is not F32:
        return _integer_quotient(ctx, x, other, rounding_mode)
    return _unary(ctx, {"floor": "floor", "trunc": "trunc"}[rounding_mode], quotient)


@aten("prims.convert_element_type.default")
def convert(ctx: Context, x: Tensor, dtype: object) -> Tensor:
    """Convert to the type that PyTorch says comes out."""
    if ctx.dtype is None:
        raise Unsupported("conversion to a type other than float32, int32, int64 and bool")
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
    """|x| with the other's sign; -0 counts as positive."""
    size = _unary(ctx, "abs", emit.cast(ctx.g, x, F32))
    below = _apply(ctx, "mul", _apply(ctx, "lt", other, 0.0), -2.0)
    return _apply(ctx, "mul", size, _apply(ctx, "add", below, 1.0))


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
