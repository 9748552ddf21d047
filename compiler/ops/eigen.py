"""Eigenvalues and right eigenvectors of any square matrices.

    eig(a)  (..., 2 + 2n, n): real and imaginary parts of the eigenvalues, above the real and the
            imaginary parts of their vectors, one vector in each column

a is real (..., n, n), or complex (..., 2n, n): real parts above imaginary ones. Eigenvalues come in
the order of LAPACK's sgeev and cgeev, as far as rounding leaves it (`schur.py`). A vector has
length 1, and the first of its largest elements is real and positive: geev's vectors up to their
sign. A matrix with NaN or infinity gives NaN.

The gradients are those under this normalization, as of JAX's `enable_eigvec_derivs`. For losses
that do not depend on the phase of a vector they equal PyTorch's and TensorFlow's. Equal eigenvalues
contribute no gradient to each other's vectors.

Methods: Golub and Van Loan, Matrix Computations, 7.4 to 7.6, for the Hessenberg form, Francis's
steps and back-substitution; James, Langou and Lowery (2014) for balancing; Ahues and Tisseur
(LAPACK Working Note 122) for the test of convergence; Boeddeker et al. (arXiv 1701.00392) for the
gradients.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ops import schur
from pockengine.compiler.ops.matrices import (
    check_matrix,
    each_matrix,
    masked,
    matrix_cost,
    rows_of,
    turned,
)
from pockengine.compiler.ops.registry import Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]

TIE = 1 - 1e-5
"""Elements as large as this share of the largest count as equally large."""


def _infer_eig(types: Types, attrs: Attrs) -> Types:
    (a,) = types
    check_matrix("eig", a, square=False)
    *batch, rows, size = a.shape
    if rows not in (size, 2 * size):
        raise GraphError(f"eig needs square matrices, or their real above imaginary parts, not {a}")
    return (a.with_shape((*batch, 2 + 2 * size, size)),)


def _eval_eig(a: np.ndarray) -> np.ndarray:
    rows, size = a.shape
    values, vectors = schur.eig(a if rows == size else a[:size] + 1j * a[size:])
    vectors = vectors / np.linalg.norm(vectors, axis=0)
    lengths = np.abs(vectors)
    largest = (lengths >= TIE * lengths.max(0)).argmax(0), np.arange(size)
    pivots = vectors[largest]
    vectors = vectors * (pivots.conj() / np.abs(pivots))
    vectors[largest] = vectors[largest].real
    return np.concatenate([values.real[None], values.imag[None], vectors.real, vectors.imag])


def _eig_da(g: "Builder", node: Node, dy: Value) -> Value:
    """da = v⁻ᴴ (diag(dw) + (m - vᴴv diag(re m)) / conj(w_j - w_i)) vᴴ, m = vᴴ dv.

    A complex matrix x is stacked, its real above its imaginary part; [x, i x] then multiplies as x.
    """
    *_, rows, size = node.operands[0].shape
    (values, v), (dvalues, dv) = (
        (rows_of(g, x, 0, 2), rows_of(g, x, 2, 2 + 2 * size)) for x in (node.result, dy)
    )
    whole = _whole(g, v)
    dv = _with_phase(g, v, dv)
    adjoint = turned(g, whole)
    norms = g.mul(g.matmul(adjoint, v), _column_sums(g, g.mul(v, dv)))
    inner = _over_gaps(g, values, g.sub(g.matmul(adjoint, dv), norms))
    diagonal = [masked(g, rows_of(g, dvalues, i, i + 1), np.eye(size)) for i in range(2)]
    inner = g.add(inner, _stack(g, *diagonal))
    real, imag = (turned(g, rows_of(g, v, i * size, (i + 1) * size)) for i in range(2))
    right = g.matmul(_whole(g, inner), _stack(g, real, g.neg(imag)))
    da = g.solve(adjoint, right)
    return da if rows == 2 * size else rows_of(g, da, 0, size)


def _stack(g: "Builder", real: Value, imag: Value) -> Value:
    return g.concat(real, imag, axis=len(real.shape) - 2)


def _whole(g: "Builder", x: Value) -> Value:
    """[x, i x] of a stacked matrix."""
    return g.concat(x, _by_i(g, x), axis=len(x.shape) - 1)


def _by_i(g: "Builder", x: Value) -> Value:
    """I x of a stacked matrix."""
    size = x.shape[-2] // 2
    return _stack(g, g.neg(rows_of(g, x, size, 2 * size)), rows_of(g, x, 0, size))


def _column_sums(g: "Builder", x: Value) -> Value:
    return g.reduce_sum(x, axes=(len(x.shape) - 2,), keepdims=True)


def _with_phase(g: "Builder", v: Value, dv: Value) -> Value:
    """Add the cotangent of the phase, which keeps the first largest element of v real."""
    axis, size = len(v.shape) - 2, v.shape[-1]
    real, imag = (rows_of(g, v, i * size, (i + 1) * size) for i in range(2))
    lengths = g.add(g.square(real), g.square(imag))
    least = g.mul(g.reduce_max(lengths, axes=(axis,), keepdims=True), g.scalar(TIE**2))
    near = g.where(g.ge(lengths, least), g.scalar(1.0), g.scalar(0.0))
    ranks = np.arange(size, 0, -1, dtype=np.float32)[:, None]
    ranked = masked(g, near, np.broadcast_to(ranks, real.shape))
    first = g.eq(ranked, g.reduce_max(ranked, axes=(axis,), keepdims=True))
    phase = _column_sums(g, g.mul(_by_i(g, v), dv))
    share = g.where(first, g.neg(g.div(phase, g.where(first, real, g.scalar(1.0)))), g.scalar(0.0))
    return g.add(dv, _stack(g, masked(g, share, np.zeros(real.shape)), share))


def _over_gaps(g: "Builder", values: Value, x: Value) -> Value:
    """Divide x[i, j] by conj(w_j - w_i); 0 for equal values."""
    size = x.shape[-1]
    real, imag = (
        g.sub(row, turned(g, row)) for row in (rows_of(g, values, i, i + 1) for i in range(2))
    )
    square = g.add(g.square(real), g.square(imag))
    equal = g.eq(square, g.scalar(0.0))
    inverse = g.where(equal, g.scalar(0.0), g.reciprocal(g.where(equal, g.scalar(1.0), square)))
    first, second = (rows_of(g, x, i * size, (i + 1) * size) for i in range(2))
    product = (
        g.sub(g.mul(first, real), g.mul(second, imag)),
        g.add(g.mul(first, imag), g.mul(second, real)),
    )
    return _stack(g, *(g.mul(part, inverse) for part in product))


define(
    "eig",
    "a",
    infer=_infer_eig,
    eval=each_matrix(_eval_eig, _infer_eig),
    vjp={"a": _eig_da},
    cost=matrix_cost(100),
)
