"""TensorFlow operators of complex numbers, which are pairs of real ones, and Fourier transforms.

A rule here is called where an input or a result is complex. Operators that move elements, or add
them up, do the same to both parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32
from pockengine.frontends import emit
from pockengine.frontends.emit import complex as emit_complex
from pockengine.frontends.emit import fourier, matrices
from pockengine.frontends.emit.complex import Complex, Operand, as_complex
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor
from pockengine.frontends.tensorflow.ops.registry import (
    RULES,
    Rule,
    TfContext,
    TfRule,
    integers,
)

PARTWISE = frozenset(
    [
        "BroadcastTo",
        "ConcatV2",
        "Cumsum",
        "EnsureShape",
        "ExpandDims",
        "Gather",
        "GatherNd",
        "GatherV2",
        "Identity",
        "Neg",
        "Pack",
        "Pad",
        "PadV2",
        "Reshape",
        "ReverseV2",
        "Roll",
        "Slice",
        "Snapshot",
        "Split",
        "SplitV",
        "Squeeze",
        "StridedSlice",
        "Sum",
        "Tile",
        "Transpose",
        "Unpack",
    ]
)
"""Operators that mean the same for the real and the imaginary part."""

COMPLEX_RULES: dict[str, TfRule] = {}


def is_complex(inputs: Sequence[Any]) -> bool:
    """Return whether an operator gets complex numbers."""
    return any(isinstance(x, Complex) for x in inputs)


def complex_rule(name: str) -> TfRule:
    """Return an operator's rule for complex numbers; Unsupported if there is none."""
    rule = COMPLEX_RULES.get(name)
    if rule is not None:
        return rule
    if name not in PARTWISE:
        raise Unsupported("complex numbers, for which there is no rule; use their real parts")
    return _partwise(RULES[name])


def _partwise(rule: TfRule) -> TfRule:
    def both(ctx: TfContext, *inputs: Any, **attributes: Any) -> Any:
        sides = []
        for side in ("real", "imag"):
            parts = [getattr(x, side) if isinstance(x, Complex) else x for x in inputs]
            sides.append(rule.apply(ctx, *parts, **attributes))
        if isinstance(sides[0], Tensor):
            return Complex(*sides)
        return [Complex(*parts) for parts in zip(*sides, strict=True)]

    return replace(rule, apply=both)


def _rule(*names: str, static: Sequence[int] = ()) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        COMPLEX_RULES.update(dict.fromkeys(names, TfRule(rule, tuple(static), ())))
        return rule

    return register


UNARY = {name.capitalize(): name for name in ("angle", "conj", "exp", "imag", "real", "square")} | {
    "ComplexAbs": "abs",
}
BINARY = {"Add": "add", "AddV2": "add", "Sub": "sub", "Mul": "mul", "RealDiv": "div", "Div": "div"}
"""Operators by their shared meaning."""


def _define(name: str, emitted: Callable[..., Operand]) -> None:
    @_rule(name)
    def rule(ctx: TfContext, *operands: Any) -> Operand:
        return emitted(ctx.g, *operands)


for _name, _meaning in UNARY.items():
    _define(_name, emit_complex.UNARY[_meaning])
for _name, _meaning in BINARY.items():
    _define(_name, emit_complex.BINARY[_meaning])
_define("Complex", emit_complex.joined)
_define("SelectV2", emit_complex.choose)


@_rule("Cast")
def cast(ctx: TfContext, x: Operand, *, DstT: np.dtype) -> Operand:
    """Make real numbers complex, or drop the imaginary part."""
    if np.issubdtype(DstT, np.complexfloating):
        return as_complex(ctx.g, x)
    if not isinstance(x, Complex) or np.dtype(DstT) != F32.numpy:
        raise Unsupported(f"complex numbers as {np.dtype(DstT).name}; take their real parts")
    return x.real


@_rule("MatMul", "BatchMatMulV2", "BatchMatMulV3")
def matmul(
    ctx: TfContext,
    a: Operand,
    b: Operand,
    *,
    adj_x: bool = False,
    adj_y: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Complex:
    """Multiply matrices."""
    first, second = as_complex(ctx.g, a), as_complex(ctx.g, b)
    if adj_x or transpose_a:
        first = _turned(ctx, first, conjugate=adj_x)
    if adj_y or transpose_b:
        second = _turned(ctx, second, conjugate=adj_y)
    return emit_complex.multiply(ctx.g, first, second, lambda x, y: emit.matmul(ctx.g, x, y))


@_rule("MatrixSolve")
def solve(ctx: TfContext, a: Operand, b: Operand, *, adjoint: bool = False) -> Complex:
    """Return the x with a x = b, or aᴴ x = b."""
    a = as_complex(ctx.g, a)
    return matrices.solve_complex(
        ctx.g, _turned(ctx, a, conjugate=True) if adjoint else a, as_complex(ctx.g, b)
    )


@_rule("MatrixInverse")
def inverse(ctx: TfContext, a: Complex, *, adjoint: bool = False) -> Complex:
    """Invert each matrix."""
    return matrices.inverse_complex(ctx.g, _turned(ctx, a, conjugate=True) if adjoint else a)


def _turned(ctx: TfContext, a: Complex, *, conjugate: bool) -> Complex:
    """Transpose each matrix, and conjugate it on request."""
    return emit_complex.each(matrices.turned, emit_complex.conjugate(ctx.g, a) if conjugate else a)


@_rule("Eig")
def eig(ctx: TfContext, a: Tensor | Complex, *, compute_v: bool = True) -> list[Complex]:
    """Return the eigenvalues of any matrix, in LAPACK's order, and vectors as columns."""
    values, vectors = matrices.eig(ctx.g, a)
    return [values, vectors] if compute_v else [values]


def _define_fft(rank: int) -> None:
    suffix = "" if rank == 1 else f"{rank}D"

    @_rule(f"FFT{suffix}")
    def fft(ctx: TfContext, x: Complex) -> Complex:
        """Transform complex numbers."""
        for dim in range(len(x.shape) - rank, len(x.shape)):
            x = fourier.fft(ctx.g, x, dim, 1.0, forward=True)
        return x

    @_rule(f"IFFT{suffix}")
    def ifft(ctx: TfContext, x: Complex) -> Complex:
        """Transform back into complex numbers."""
        for dim in range(len(x.shape) - rank, len(x.shape)):
            x = fourier.fft(ctx.g, x, dim, 1 / x.shape[dim], forward=False)
        return x

    @_rule(f"RFFT{suffix}", static=(1,))
    def rfft(ctx: TfContext, x: Tensor, lengths: np.ndarray) -> Complex:
        """Transform real numbers; longer lines are cropped, shorter ones padded with zeros."""
        dims = range(x.rank - rank, x.rank)
        for dim, length in zip(dims, integers(lengths), strict=True):
            x = fourier.of_length(ctx.g, x, dim, length)
        y = fourier.rfft(ctx.g, x, x.rank - 1, 1.0, whole=False)
        for dim in dims[:-1]:
            y = fourier.fft(ctx.g, y, dim, 1.0, forward=True)
        return y

    @_rule(f"IRFFT{suffix}", static=(1,))
    def irfft(ctx: TfContext, x: Complex, lengths: np.ndarray) -> Tensor:
        """Transform back into real numbers."""
        *others, last = integers(lengths)
        count = len(x.shape)
        for dim, length in zip(range(count - rank, count - 1), others, strict=True):
            resized = partial(fourier.of_length, ctx.g, dim=dim, length=length)
            x = emit_complex.each(resized, x)
            x = fourier.fft(ctx.g, x, dim, 1.0, forward=False)
        resized = partial(fourier.of_length, ctx.g, dim=count - 1, length=last // 2 + 1)
        x = emit_complex.each(resized, x)
        return fourier.irfft(ctx.g, x, count - 1, points=last, factor=1 / prod([*others, last]))


for _rank in (1, 2, 3):
    _define_fft(_rank)
