"""Factorizations and solves of matrices (..., n, n), in our ops."""

import numpy as np

from pockengine.compiler.ir import I64, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.complex import Complex, as_complex
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape


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


def solve_complex(g: Builder, a: Tensor | Complex, b: Tensor | Complex) -> Complex:
    """Return the x with a x = b, of the real equations for the parts of x, of twice the size."""
    a, b = as_complex(g, a), as_complex(g, b)
    whole = emit.concat(
        g,
        [
            emit.concat(g, [a.real, emit.unary("neg")(g, a.imag)], a.real.rank - 1),
            emit.concat(g, [a.imag, a.real], a.real.rank - 1),
        ],
        a.real.rank - 2,
    )
    x = solve(g, whole, emit.concat(g, [b.real, b.imag], b.real.rank - 2))
    return Complex(*_above(g, x, a.shape[-1]))


def inverse_complex(g: Builder, a: Complex) -> Complex:
    """Return the x with a x = 1."""
    return solve_complex(g, a, identities(g, a.real))


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
        emit.squeeze(g, emit.slice_dim(g, both, -1, start=place, stop=place + 1), [-1])
        for place in range(2)
    )
    return sign, size


def det(g: Builder, a: Tensor) -> Tensor:
    """Return each determinant."""
    sign, size = slogdet(g, a)
    return emit.elementwise(g, "mul", sign, emit.unary("exp")(g, size))


def eigh(g: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return a symmetric matrix' eigenvalues, from the smallest on, and vectors as columns."""
    both = plain(g.eigh(framework_order(g, a)))
    values = emit.squeeze(g, emit.slice_dim(g, both, -2, start=0, stop=1), [-2])
    return values, emit.slice_dim(g, both, -2, start=1, stop=both.shape[-2])


def eig(g: Builder, a: Tensor | Complex) -> tuple[Complex, Complex]:
    """Return the eigenvalues of any matrix, in LAPACK's order, and vectors as columns."""
    size = a.shape[-1]
    if isinstance(a, Complex):
        a = emit.concat(g, [a.real, a.imag], len(a.shape) - 2)
    whole = plain(g.eig(framework_order(g, a)))
    rows = [emit.slice_dim(g, whole, -2, start=i, stop=i + 1) for i in range(2)]
    vectors = [
        emit.slice_dim(g, whole, -2, start=2 + i * size, stop=2 + (i + 1) * size) for i in range(2)
    ]
    return Complex(*(emit.squeeze(g, row, [-2]) for row in rows)), Complex(*vectors)


def svd(g: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return left vectors, singular values in descending order, and right vectors, as columns."""
    rows = a.shape[-2]
    whole = plain(g.svd(framework_order(g, a)))
    values = emit.squeeze(g, emit.slice_dim(g, whole, -2, start=0, stop=1), [-2])
    left = emit.slice_dim(g, whole, -2, start=1, stop=1 + rows)
    return left, values, emit.slice_dim(g, whole, -2, start=1 + rows, stop=whole.shape[-2])


def qr(g: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return q (..., m, k) with orthonormal columns and the upper r (..., k, n), q r = a.

    k is the smaller of m and n. Of a wide matrix the first m columns are factored.
    """
    rows, columns = a.shape[-2:]
    if rows < columns:
        q, r = qr(g, emit.slice_dim(g, a, -1, start=0, stop=rows))
        right = emit.matmul(g, turned(q), emit.slice_dim(g, a, -1, start=rows, stop=columns))
        return q, emit.concat(g, [r, right], a.rank - 1)
    return _above(g, plain(g.qr(framework_order(g, a))), rows)


def lu(g: Builder, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return l without its diagonal of ones and u in one (..., m, n); rows; exchanges.

    Row i of l u is row rows[i] (..., m) of a; exchanges (..., min(m, n)) are LAPACK's pivots,
    counted from 0. Of a wide matrix the first m columns are factored.
    """
    size, columns = a.shape[-2:]
    if size < columns:
        packed, rows, exchanges = lu(g, emit.slice_dim(g, a, -1, start=0, stop=size))
        right = ordered(g, emit.slice_dim(g, a, -1, start=size, stop=columns), rows)
        right = triangular_solve(g, packed, right, lower=True, unit=True)
        return emit.concat(g, [packed, right], a.rank - 1), rows, exchanges
    whole = plain(g.lu(framework_order(g, a)))
    rows, exchanges = (
        emit.squeeze(g, emit.slice_dim(g, whole, -1, start=columns + i, stop=columns + i + 1), [-1])
        for i in range(2)
    )
    exchanges = emit.slice_dim(g, exchanges, -1, start=0, stop=columns)
    packed = emit.slice_dim(g, whole, -1, start=0, stop=columns)
    return packed, emit.cast(g, rows, I64), emit.cast(g, exchanges, I64)


def ordered(g: Builder, x: Tensor, rows: Tensor) -> Tensor:
    """Reorder the rows of each matrix: rows[i] becomes row i."""
    places = emit.broadcast(g, reshape(g, rows, (*rows.shape, 1)), x.shape)
    values = (framework_order(g, part) for part in (x, places))
    return plain(g.take_along(*values, axis=x.rank - 2))


def _above(g: Builder, x: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Keep only the first rows of each matrix."""
    return (
        emit.slice_dim(g, x, -2, start=0, stop=rows),
        emit.slice_dim(g, x, -2, start=rows, stop=x.shape[-2]),
    )


def _alike(g: Builder, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat batches until both have as many."""
    batch = tuple(int(n) for n in np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    first, second = (emit.broadcast(g, x, (*batch, *x.shape[-2:])) for x in (a, b))
    return first, second
