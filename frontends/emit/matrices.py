"""Factors and equations of matrices (..., n, n), said in our ops."""

import numpy as np

from pockengine.compiler.ir import Builder
from pockengine.frontends import emit
from pockengine.frontends.layout import Tensor, framework_order, permute, plain


def turned(x: Tensor) -> Tensor:
    """Transpose each matrix."""
    return permute(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def cholesky(g: Builder, a: Tensor) -> Tensor:
    """Return the lower l with l lᵀ = a, of a's lower triangle."""
    return plain(g.cholesky(framework_order(g, a)))


def triangular_solve(
    g: Builder,
    a: Tensor,
    b: Tensor,
    *,
    lower: bool,
    transpose: bool = False,
    unit: bool = False,
) -> Tensor:
    """Return the x with a x = b, or aᵀ x = b, of a's lower or upper triangle."""
    values = (framework_order(g, part) for part in _alike(g, a, b))
    return plain(g.triangular_solve(*values, lower=lower, transpose=transpose, unit=unit))


def solve(g: Builder, a: Tensor, b: Tensor) -> Tensor:
    """Return the x with a x = b."""
    return plain(g.solve(*(framework_order(g, part) for part in _alike(g, a, b))))


def inverse(g: Builder, a: Tensor) -> Tensor:
    """Return the x with a x = 1."""
    return solve(g, a, identities(g, a))


def identities(g: Builder, a: Tensor) -> Tensor:
    """Return matrices of ones on the diagonal in a's shape."""
    return plain(g.constant(np.broadcast_to(np.eye(a.shape[-1], dtype=np.float32), a.shape).copy()))


def slogdet(g: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sign of each determinant, and the logarithm of its size."""
    both = plain(g.slogdet(framework_order(g, a)))
    sign, size = (
        emit.squeeze(g, emit.slice_dim(g, both, -1, place, place + 1), [-1]) for place in range(2)
    )
    return sign, size


def eigh(g: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return a symmetric matrix' eigenvalues, from the smallest on, and vectors as columns."""
    both = plain(g.eigh(framework_order(g, a)))
    values = emit.squeeze(g, emit.slice_dim(g, both, -2, 0, 1), [-2])
    return values, emit.slice_dim(g, both, -2, 1, both.shape[-2])


def svd(g: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return left vectors, singular values from the largest on, and right vectors, as columns."""
    rows = a.shape[-2]
    whole = plain(g.svd(framework_order(g, a)))
    values = emit.squeeze(g, emit.slice_dim(g, whole, -2, 0, 1), [-2])
    left = emit.slice_dim(g, whole, -2, 1, 1 + rows)
    return left, values, emit.slice_dim(g, whole, -2, 1 + rows, whole.shape[-2])


def _alike(g: Builder, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat batches until both have as many."""
    batch = tuple(int(n) for n in np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    first, second = (emit.broadcast(g, x, (*batch, *x.shape[-2:])) for x in (a, b))
    return first, second
