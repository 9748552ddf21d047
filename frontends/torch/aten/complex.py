"""ATen operators of complex numbers, which are pairs of real ones, and Fourier transforms.

A rule here is called where an argument or the result is complex. Operators that move elements, or
add them up, do the same to both parts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import complex as emit_complex
from pockengine.frontends.emit import fourier, matrices
from pockengine.frontends.emit.complex import Complex, Operand, as_complex
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.matrices import FACTORS
from pockengine.frontends.torch.aten.registry import AtenContext, Missing, Rule, rule_for

RULES: dict[str, Rule] = {}

PARTWISE = frozenset(
    [
        "_unsafe_view",
        "alias",
        "as_strided",
        "cat",
        "chunk",
        "clone",
        "constant_pad_nd",
        "contiguous",
        "copy",
        "cumsum",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "flip",
        "gather",
        "index",
        "index_select",
        "lift_fresh_copy",
        "mean",
        "narrow",
        "neg",
        "pad",
        "permute",
        "repeat",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "sum",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "zeros_like",
    ]
)
"""Operators that mean the same for the real and the imaginary part."""


def complex_rule_for(overload: str) -> Rule | None:
    """Find the rule of an operator on complex numbers."""
    name, _, variant = overload.partition(".")
    rule = RULES.get(f"{name.removesuffix('_')}.{variant}")
    if rule is None and name.removesuffix("_") in PARTWISE:
        real = rule_for(overload)
        return None if real is None else _partwise(real)
    return rule


def is_complex(value: Any) -> bool:
    """Whether an argument is complex, or a list of complex ones."""
    if isinstance(value, (list, tuple)):
        return any(is_complex(part) for part in value)
    return isinstance(value, Complex)


def _partwise(rule: Rule) -> Rule:
    def both(ctx: AtenContext, **arguments: Any) -> Any:
        own = AtenContext(ctx.g, ctx.shape, F32)
        sides = [
            rule(own, **{name: _part(ctx, value, side) for name, value in arguments.items()})
            for side in ("real", "imag")
        ]
        if isinstance(sides[0], Tensor):
            return Complex(*sides)
        return [Complex(*parts) for parts in zip(*sides, strict=True)]

    return both


def _part(ctx: AtenContext, value: Any, side: str) -> Any:
    if isinstance(value, (list, tuple)) and is_complex(value):
        return [_part(ctx, as_complex(ctx.g, item), side) for item in value]
    return getattr(value, side) if isinstance(value, Complex) else value


def _complex(*overloads: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(overloads, rule))
        return rule

    return register


def _unary(name: str) -> Rule:
    def rule(ctx: AtenContext, x: Complex) -> Operand:
        return emit_complex.UNARY[name](ctx.g, x)

    return rule


def _define_binary(name: str) -> None:
    @_complex(f"{name}.Tensor", f"{name}.Scalar")
    def rule(ctx: AtenContext, x: Operand, other: Operand) -> Operand:
        return emit_complex.BINARY[name](ctx.g, x, other)


_define_binary("mul")
_define_binary("div")
for _name in ("abs", "angle", "conj", "exp", "imag", "real", "reciprocal"):
    RULES[f"{_name}.default"] = _unary(_name)
for _name in ("_conj", "_conj_physical", "conj_physical"):
    RULES[f"{_name}.default"] = RULES["conj.default"]


@_complex("view_as_real.default")
def view_as_real(ctx: AtenContext, x: Complex) -> Tensor:
    """Stack both parts in a new last dimension."""
    parts = [reshape(ctx.g, part, (*x.shape, 1)) for part in (x.real, x.imag)]
    return emit.concat(ctx.g, parts, len(x.shape))


@_complex("view_as_complex.default")
def view_as_complex(ctx: AtenContext, x: Tensor) -> Complex:
    """Read a last dimension of two as both parts."""
    parts = (emit.slice_dim(ctx.g, x, -1, start=place, stop=place + 1) for place in range(2))
    return Complex(*(emit.squeeze(ctx.g, part, [-1]) for part in parts))


@_complex("complex.default")
def complex_(ctx: AtenContext, real: Tensor, imag: Tensor) -> Complex:
    """Join two real tensors."""
    return emit_complex.joined(ctx.g, real, imag)


@_complex("polar.default")
def polar(ctx: AtenContext, abs: Tensor, angle: Tensor) -> Complex:
    """Join a size and an angle."""
    return emit_complex.polar(ctx.g, abs, angle)


@_complex("to.dtype", "to.dtype_layout", "_to_copy.default")
def to(ctx: AtenContext, x: Operand, **_: Any) -> Operand:
    """Make real numbers complex, or drop the imaginary part."""
    return x.real if isinstance(x, Complex) and ctx.dtype is F32 else as_complex(ctx.g, x)


@_complex("resolve_conj.default", "resolve_neg.default")
def same(ctx: AtenContext, x: Complex) -> Complex:
    """Return the same numbers."""
    return x


@_complex("add.Tensor", "add.Scalar")
def add(ctx: AtenContext, x: Operand, other: Operand, alpha: float = 1) -> Complex:
    """x + alpha other."""
    return emit_complex.linear_combination(ctx.g, x, other, alpha)


@_complex("sub.Tensor", "sub.Scalar")
def sub(ctx: AtenContext, x: Operand, other: Operand, alpha: float = 1) -> Complex:
    """x - alpha other."""
    return emit_complex.linear_combination(ctx.g, x, other, -alpha)


@_complex("pow.Tensor_Scalar")
def pow_(ctx: AtenContext, x: Complex, exponent: Any) -> Complex:
    """Raise to a power; PyTorch's square is such a one."""
    if exponent == 2:
        return emit_complex.multiply(ctx.g, x, x)
    size = emit_complex.squared_size(ctx.g, x)
    power = emit.arithmetic(ctx.g, "pow", size, float(exponent) / 2)
    turned = emit.weighted(ctx.g, emit_complex.angle(ctx.g, x), float(exponent))
    return emit_complex.polar(ctx.g, power, turned)


@_complex("matmul.default")
def matmul(ctx: AtenContext, x: Operand, other: Operand) -> Complex:
    """Multiply matrices."""
    return emit_complex.multiply(ctx.g, x, other, lambda a, b: emit.matmul(ctx.g, a, b))


@_complex("mm.default", "bmm.default")
def mm(ctx: AtenContext, x: Operand, mat2: Operand) -> Complex:
    """Multiply matrices or batches of matrices."""
    return matmul(ctx, x, mat2)


@_complex("linalg_eig.default")
def eig(ctx: AtenContext, x: Operand) -> list[Complex]:
    """Return the eigenvalues of any matrix, and vectors as columns."""
    assert not isinstance(x, complex)
    return [*matrices.eig(ctx.g, x)]


@_complex("linalg_eigvals.default")
def eigvals(ctx: AtenContext, x: Operand) -> Complex:
    """Return the eigenvalues of any matrix."""
    return eig(ctx, x)[0]


@_complex("linalg_solve.default")
def solve(ctx: AtenContext, A: Operand, B: Operand, left: bool) -> Complex:
    """Solve A y = B, or y A = B; B may hold a vector for each matrix."""
    g, a, b = ctx.g, as_complex(ctx.g, A), as_complex(ctx.g, B)
    if len(b.shape) == 1 or b.shape == a.shape[:-1]:
        column = emit_complex.each(lambda part: reshape(g, part, (*part.shape, 1)), b)
        y = matrices.solve_complex(g, a, column)
        return emit_complex.each(lambda part: emit.squeeze(g, part, [-1]), y)
    if left:
        return matrices.solve_complex(g, a, b)
    turned = (emit_complex.each(matrices.turned, part) for part in (a, b))
    return emit_complex.each(matrices.turned, matrices.solve_complex(g, *turned))


@_complex("_linalg_solve_ex.default")
def solve_ex(
    ctx: AtenContext, A: Operand, B: Operand, left: bool, check_errors: bool
) -> list[Complex | Missing]:
    """Solve A y = B."""
    return [solve(ctx, A, B, left), FACTORS, FACTORS, FACTORS]


@_complex("inverse.default", "linalg_inv.default")
def inverse(ctx: AtenContext, x: Complex | None = None, A: Complex | None = None) -> Complex:
    """Invert each matrix."""
    a = A if x is None else x
    assert a is not None
    return matrices.inverse_complex(ctx.g, a)


@_complex("linalg_inv_ex.default")
def inv_ex(ctx: AtenContext, A: Complex, check_errors: bool) -> list[Complex | Missing]:
    """Invert each matrix; NaN says which cannot be."""
    return [inverse(ctx, A), FACTORS]


@_complex("where.self")
def where(ctx: AtenContext, condition: Tensor, x: Operand, other: Operand) -> Complex:
    """x where the condition holds, else other."""
    return emit_complex.choose(ctx.g, condition, x, other)


def _factor(sizes: Sequence[int], normalization: int) -> float:
    """Return what ATen's code of a normalization scales by: 1, 1 / sqrt(n) or 1 / n."""
    return (1.0, 1 / math.sqrt(math.prod(sizes)), 1 / math.prod(sizes))[normalization]


@_complex("_fft_r2c.default")
def fft_r2c(
    ctx: AtenContext, x: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Complex:
    """Transform real numbers: the last of `dim`, then the others."""
    *others, last = dim
    factor = _factor([x.shape[axis] for axis in dim], normalization)
    y = fourier.rfft(ctx.g, x, last, factor, whole=not onesided)
    for axis in others:
        y = fourier.fft(ctx.g, y, axis, 1.0, forward=True)
    return y


@_complex("_fft_c2r.default")
def fft_c2r(
    ctx: AtenContext, x: Complex, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Tensor:
    """Transform back into real numbers: the last of `dim` after the others."""
    *others, last = dim
    for axis in others:
        x = fourier.fft(ctx.g, x, axis, 1.0, forward=False)
    sizes = [last_dim_size, *(x.shape[axis] for axis in others)]
    return fourier.irfft(ctx.g, x, last, points=last_dim_size, factor=_factor(sizes, normalization))


@_complex("_fft_c2c.default")
def fft_c2c(
    ctx: AtenContext, x: Complex, dim: Sequence[int], normalization: int, forward: bool
) -> Complex:
    """Transform complex numbers along each dimension."""
    factor = _factor([x.shape[axis] for axis in dim], normalization)
    for index, axis in enumerate(dim):
        x = fourier.fft(ctx.g, x, axis, 1.0 if index else factor, forward=forward)
    return x
