"""Primitives of complex numbers, which are pairs of real ones, and Fourier transforms.

A rule here is called where an operand or the result is complex. Primitives that move elements, or
add them up, do the same to both parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from pockengine.frontends import emit
from pockengine.frontends.emit import complex as emit_complex
from pockengine.frontends.emit import fourier, matrices
from pockengine.frontends.emit.complex import Complex, Operand, as_complex
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives import reduction
from pockengine.frontends.jax.primitives.registry import RULES, JaxContext
from pockengine.frontends.layout import Tensor

PARTWISE = frozenset(
    [
        "broadcast_in_dim",
        "concatenate",
        "copy",
        "copy_p",
        "cumsum",
        "device_put",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
        "neg",
        "optimization_barrier",
        "pad",
        "reduce_sum",
        "reshape",
        "rev",
        "slice",
        "split",
        "squeeze",
        "stack",
        "tile",
        "transpose",
        "unstack",
    ]
)
"""Primitives that mean the same for the real and the imaginary part."""

TRANSFORMS = ("FFT", "IFFT", "RFFT", "IRFFT")
"""Kinds of transforms by JAX's numbers."""

ComplexRule = Callable[..., Any]
COMPLEX_RULES: dict[str, ComplexRule] = {}


def complex_rule(name: str) -> ComplexRule:
    """Return a primitive's rule for complex numbers; Unsupported if there is none."""
    rule = COMPLEX_RULES.get(name)
    if rule is not None:
        return rule
    if name not in PARTWISE:
        raise Unsupported("complex numbers, for which there is no rule; use their real parts")
    return lambda ctx, *operands, **params: _partwise(name, ctx, operands, params)


def _partwise(
    name: str, ctx: JaxContext, operands: Sequence[Any], params: dict[str, Any]
) -> Complex | list[Complex]:
    own = replace(ctx, dtypes=tuple(np.dtype(np.float32) for _ in ctx.dtypes))
    sides: list[Any] = []
    for side in ("real", "imag"):
        parts = [getattr(x, side) if isinstance(x, (Complex, np.ndarray)) else x for x in operands]
        sides.append(RULES[name].apply(own, *parts, **params))
    if isinstance(sides[0], Tensor):
        return Complex(*sides)
    return [Complex(*parts) for parts in zip(*sides, strict=True)]


def _rule(*names: str) -> Callable[[ComplexRule], ComplexRule]:
    def register(rule: ComplexRule) -> ComplexRule:
        COMPLEX_RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def _define(name: str, emitted: Callable[..., Operand]) -> None:
    @_rule(name)
    def rule(ctx: JaxContext, *operands: Operand, **_: Any) -> Operand:
        return emitted(ctx.g, *operands)


for _name in ("abs", "conj", "exp", "imag", "real", "square"):
    _define(_name, emit_complex.UNARY[_name])
for _name in emit_complex.BINARY:
    _define(_name, emit_complex.BINARY[_name])
_define("add_any", emit_complex.BINARY["add"])
_define("complex", emit_complex.joined)


@_rule("convert_element_type")
def convert(ctx: JaxContext, x: Operand, *, new_dtype: Any, **_: Any) -> Operand:
    """Make real numbers complex, or drop the imaginary part."""
    if np.issubdtype(new_dtype, np.complexfloating):
        return as_complex(ctx.g, x)
    return emit.cast(ctx.g, x.real, ctx.dtype) if isinstance(x, Complex) else x


@_rule("integer_pow")
def integer_pow(ctx: JaxContext, x: Complex, *, y: int, **_: Any) -> Complex:
    """Raise to an integer power by multiplication."""
    if not 1 <= y <= 8:
        raise Unsupported(f"the power {y} of complex numbers; multiply them")
    power = x
    for _step in range(y - 1):
        power = emit_complex.multiply(ctx.g, power, x)
    return power


@_rule("select_n")
def select_n(ctx: JaxContext, which: Tensor, *cases: Operand, **params: Any) -> Complex:
    """Take the case of this number for each element."""
    pairs = [as_complex(ctx.g, case) for case in cases]

    def select(*parts: Tensor) -> Any:
        return RULES["select_n"].apply(ctx, which, *parts)

    return emit_complex.each(select, *pairs)


@_rule("dot_general")
def dot_general(ctx: JaxContext, a: Operand, b: Operand, **params: Any) -> Complex:
    """Multiply over some dimensions."""
    return emit_complex.multiply(
        ctx.g, a, b, lambda x, y: reduction.dot_general(ctx, x, y, **params)
    )


@_rule("eig")
def eig(
    ctx: JaxContext,
    a: Tensor | Complex,
    *,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
    **_: Any,
) -> list[Complex]:
    """Return the eigenvalues of any matrix, and right vectors as columns."""
    if compute_left_eigenvectors:
        raise Unsupported(
            "left eigenvectors; say compute_left_eigenvectors=False, and take the right ones of "
            "the conjugate transpose"
        )
    values, vectors = matrices.eig(ctx.g, a)
    if not compute_right_eigenvectors:
        return [values]
    parts = [a.real, a.imag] if isinstance(a, Complex) else [a]
    if not enable_eigvec_derivs and any(emit.trains(ctx.g, part) for part in parts):
        raise Unsupported(
            "eigenvectors of what trains, whose gradients JAX gives on demand only; use "
            "jnp.linalg.eigvals, jax.lax.stop_gradient, or jax.lax.linalg.eig with "
            "enable_eigvec_derivs=True"
        )
    return [values, vectors]


@_rule("fft")
def fft(
    ctx: JaxContext, x: Operand, *, fft_type: Any, fft_lengths: Sequence[int], **_: Any
) -> Operand:
    """Transform the last dimensions: complex numbers, real ones, or back into real ones."""
    g, kind = ctx.g, TRANSFORMS[int(fft_type)]
    dims = list(range(len(ctx.shape) - len(fft_lengths), len(ctx.shape)))
    *others, last = dims
    factor = 1.0 if kind in ("FFT", "RFFT") else 1 / prod(fft_lengths)
    if kind == "IRFFT":
        y = as_complex(g, x)
        for dim in others:
            y = fourier.fft(g, y, dim, 1.0, forward=False)
        return fourier.irfft(g, y, last, points=int(fft_lengths[-1]), factor=factor)
    if kind == "RFFT":
        assert isinstance(x, Tensor)  # JAX does not support complex ones
        y, left = fourier.rfft(g, x, last, factor, whole=False), others
    else:
        y, left = (
            emit_complex.each(lambda part: emit.weighted(g, part, factor), as_complex(g, x)),
            dims,
        )
    for dim in left:
        y = fourier.fft(g, y, dim, 1.0, forward=kind != "IFFT")
    return y
