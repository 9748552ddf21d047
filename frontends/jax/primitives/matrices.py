"""Primitives of linear algebra: factors of matrices, and equations of triangular ones."""

from typing import Any

import numpy as np

from pockengine.compiler.ir import I32, Value
from pockengine.frontends import emit
from pockengine.frontends.emit import matrices
from pockengine.frontends.emit.gradient import with_gradient
from pockengine.frontends.emit.matrices import turned
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.jax.primitives.registry import JaxContext, primitive
from pockengine.frontends.layout import Tensor, framework_order, plain

MOST_EXCHANGES = 64
"""Maximum number of row exchanges; each is several kernels."""


@primitive("cholesky")
def cholesky(ctx: JaxContext, a: Tensor, **_: Any) -> Tensor:
    """Return the lower l with l lᵀ = a, whose gradient is not made symmetric."""
    g, low = ctx.g, matrices.cholesky(ctx.g, a)
    if not ctx.forward or not emit.trains(g, a):
        return low
    size = low.shape[-1]
    half = np.tril(np.ones((size, size), np.float32)) - 0.5 * np.eye(size, dtype=np.float32)

    def formula(dy: Value) -> Value:
        inner = g.mul(g.matmul(low.value, dy, transpose_a=True), g.constant(half))
        left = plain(g.triangular_solve(low.value, inner, transpose=True))
        right = g.triangular_solve(low.value, framework_order(g, turned(left)), transpose=True)
        return framework_order(g, turned(plain(right)))

    return with_gradient(g, low, (framework_order(g, a), formula))


@primitive("triangular_solve")
def triangular_solve(
    ctx: JaxContext,
    a: Tensor,
    b: Tensor,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    unit_diagonal: bool,
    **_: Any,
) -> Tensor:
    """Return the x with a x = b, or x a = b, of one of a's triangles."""
    if left_side:
        return matrices.triangular_solve(
            ctx.g, a, b, lower=lower, transpose=transpose_a, unit=unit_diagonal
        )
    x = matrices.triangular_solve(
        ctx.g, a, turned(b), lower=lower, transpose=not transpose_a, unit=unit_diagonal
    )
    return turned(x)


@primitive("qr")
def qr(
    ctx: JaxContext, a: Tensor, *, full_matrices: bool, pivoting: bool = False, **_: Any
) -> list[Tensor]:
    """Return q with orthonormal columns and the upper r, q r = a."""
    rows, columns = a.shape[-2:]
    if pivoting or (full_matrices and rows > columns):
        raise Unsupported(
            "factors with more columns than the matrix, or pivots; use mode='reduced'"
        )
    return [*matrices.qr(ctx.g, a)]


@primitive("eigh")
def eigh(
    ctx: JaxContext, a: Tensor, *, lower: bool, subset_by_index: Any = None, **_: Any
) -> list[Tensor]:
    """Return a symmetric matrix' eigenvectors as columns, and values from the smallest on."""
    if subset_by_index not in (None, (0, a.shape[-1])):
        raise Unsupported("some of the eigenvalues; take them from all")
    values, vectors = matrices.eigh(ctx.g, a if lower else turned(a))
    return [vectors, values]


@primitive("svd")
def svd(
    ctx: JaxContext,
    a: Tensor,
    *,
    full_matrices: bool,
    compute_uv: bool,
    subset_by_index: Any = None,
    **_: Any,
) -> list[Tensor]:
    """Return singular values in descending order, and left and right vectors."""
    rows, columns = a.shape[-2:]
    if compute_uv and full_matrices and rows != columns:
        raise Unsupported("vectors that complete those of singular values; say full_matrices=False")
    if subset_by_index not in (None, (0, min(rows, columns))):
        raise Unsupported("some of the singular values; take them from all")
    left, values, right = matrices.svd(ctx.g, a)
    return [values, left, turned(right)] if compute_uv else [values]


@primitive("lu")
def lu(ctx: JaxContext, a: Tensor, **_: Any) -> list[Tensor]:
    """Return l and u in one, LAPACK's pivots, and the order of the rows."""
    packed, rows, exchanges = matrices.lu(ctx.g, a)
    return [packed, *(emit.cast(ctx.g, part, I32) for part in (exchanges, rows))]


@primitive("symmetric_product")
def symmetric_product(
    ctx: JaxContext, a: Tensor, c: Tensor, *, alpha: float, beta: float, **_: Any
) -> Tensor:
    """Return alpha a aᵀ + beta c."""
    product = emit.weighted(ctx.g, emit.matmul(ctx.g, a, turned(a)), float(alpha))
    if beta == 0:
        return product
    return emit.arithmetic(ctx.g, "add", product, emit.weighted(ctx.g, c, float(beta)))


@primitive("lu_pivots_to_permutation")
def lu_pivots_to_permutation(
    ctx: JaxContext, pivots: Tensor, *, permutation_size: int, **_: Any
) -> Tensor:
    """Exchange row i with row pivots[i], in sequence."""
    g, count = ctx.g, pivots.shape[-1]
    if count > MOST_EXCHANGES:
        raise Unsupported(f"the order of {count} exchanged rows; {MOST_EXCHANGES} are the most")
    numbers = np.arange(permutation_size, dtype=np.int32)
    places = plain(g.constant(numbers))
    rows = emit.broadcast(g, places, ctx.shape)
    for step in range(count):
        here = emit.arithmetic(g, "eq", places, step)
        other = emit.slice_dim(g, pivots, -1, start=step, stop=step + 1)
        there = emit.elementwise(g, "eq", emit.broadcast(g, places, ctx.shape), other)
        values = [
            emit.reduce(g, "reduce_max", emit.choose(g, mask, rows, -1), [-1], keepdims=True)
            for mask in (here, there)
        ]
        rows = emit.choose(g, here, values[1], emit.choose(g, there, values[0], rows))
    return rows
