"""TensorFlow operators of matrices: diagonals, factors, equations, determinants."""

from typing import Any

import numpy as np
import tensorflow as tf

from pockengine.frontends import emit
from pockengine.frontends.emit import matrices
from pockengine.frontends.emit.matrices import turned
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.tensorflow.ops.registry import TfContext, integers, tf_op

ZERO, OPEN = np.array(0), np.array(-1)
"""The main diagonal, and a size that the diagonals decide."""


def moved(ctx: TfContext, places: np.ndarray, parts: list[Tensor], fill: Any = 0) -> Tensor:
    """Gather elements of the concatenated tensors, counted from 1; index 0 returns `fill`."""
    g, flat = ctx.g, [reshape(ctx.g, part, (part.size,)) for part in parts]
    line = emit.concat(g, flat, 0)
    index = np.maximum(places - 1, 0).astype(np.int32).reshape(-1)
    taken = plain(g.take(framework_order(g, line), g.constant(index), axis=0))
    y = reshape(g, taken, places.shape)
    if places.all():
        return y
    number = emit.scalar(g, np.asarray(fill).item(), line.dtype)
    return emit.elementwise(g, "where", plain(g.constant(places > 0)), y, number)


def numbered(*parts: Tensor) -> list[tf.Tensor]:
    """Number the elements of tensors from 1 on."""
    found, first = [], 1
    for part in parts:
        found.append(tf.reshape(tf.range(first, first + part.size), part.shape))
        first += part.size
    return found


@tf_op("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3", static=(1, 2, 3, 4))
def matrix_diag(
    ctx: TfContext,
    x: Tensor,
    k: np.ndarray = ZERO,
    rows: np.ndarray = OPEN,
    columns: np.ndarray = OPEN,
    padding: np.ndarray = ZERO,
    *,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Write lines to the diagonals of matrices, and the padding elsewhere."""
    places = tf.raw_ops.MatrixDiagV3(
        diagonal=numbered(x)[0], k=k, num_rows=rows, num_cols=columns, padding_value=0, align=align
    )
    return moved(ctx, places.numpy(), [x], padding)


@tf_op("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3", static=(1, 2))
def matrix_diag_part(
    ctx: TfContext,
    x: Tensor,
    k: np.ndarray = ZERO,
    padding: np.ndarray = ZERO,
    *,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Read diagonals of matrices."""
    places = tf.raw_ops.MatrixDiagPartV3(input=numbered(x)[0], k=k, padding_value=0, align=align)
    return moved(ctx, places.numpy(), [x], padding)


@tf_op("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3", static=(2,))
def matrix_set_diag(
    ctx: TfContext,
    x: Tensor,
    diagonal: Tensor,
    k: np.ndarray = ZERO,
    *,
    align: str = "RIGHT_LEFT",
) -> Tensor:
    """Replace diagonals of matrices."""
    first, second = numbered(x, diagonal)
    places = tf.raw_ops.MatrixSetDiagV3(input=first, diagonal=second, k=k, align=align)
    return moved(ctx, places.numpy(), [x, diagonal])


@tf_op("Diag")
def diag(ctx: TfContext, x: Tensor) -> Tensor:
    """Write all elements to a diagonal."""
    return moved(ctx, tf.linalg.tensor_diag(numbered(x)[0]).numpy(), [x])


@tf_op("DiagPart")
def diag_part(ctx: TfContext, x: Tensor) -> Tensor:
    """Read a diagonal."""
    return moved(ctx, tf.linalg.tensor_diag_part(numbered(x)[0]).numpy(), [x])


@tf_op("Roll", static=(1, 2))
def roll(ctx: TfContext, x: Tensor, shift: np.ndarray, axis: np.ndarray) -> Tensor:
    """Roll elements along dimensions, wrapping around."""
    for steps, dim in zip(integers(shift), integers(axis), strict=True):
        size = x.shape[dim]
        first = -steps % size
        if first:
            parts = (emit.slice_dim(ctx.g, x, dim, *ends) for ends in ((first, size), (0, first)))
            x = emit.concat(ctx.g, list(parts), dim % x.rank)
    return x


@tf_op("Cross")
def cross(ctx: TfContext, a: Tensor, b: Tensor) -> Tensor:
    """Multiply vectors of three as the cross product does."""
    g = ctx.g
    left, right = (
        [emit.slice_dim(g, x, -1, start=i, stop=i + 1) for i in range(3)] for x in (a, b)
    )

    def part(i: int, j: int) -> Tensor:
        products = (emit.elementwise(g, "mul", left[m], right[n]) for m, n in ((i, j), (j, i)))
        return emit.elementwise(g, "sub", *products)

    return emit.concat(g, [part(1, 2), part(2, 0), part(0, 1)], -1)


@tf_op("Cholesky")
def cholesky(ctx: TfContext, a: Tensor) -> Tensor:
    """Return the lower l with l lᵀ = a."""
    return matrices.cholesky(ctx.g, a)


@tf_op("MatrixTriangularSolve")
def triangular_solve(
    ctx: TfContext, a: Tensor, b: Tensor, *, lower: bool = True, adjoint: bool = False
) -> Tensor:
    """Return the x with a x = b, or aᵀ x = b, of one of a's triangles."""
    return matrices.triangular_solve(ctx.g, a, b, lower=lower, transpose=adjoint)


@tf_op("MatrixSolve")
def solve(ctx: TfContext, a: Tensor, b: Tensor, *, adjoint: bool = False) -> Tensor:
    """Return the x with a x = b."""
    return matrices.solve(ctx.g, turned(a) if adjoint else a, b)


@tf_op("MatrixInverse")
def inverse(ctx: TfContext, a: Tensor, *, adjoint: bool = False) -> Tensor:
    """Invert each matrix."""
    return matrices.inverse(ctx.g, turned(a) if adjoint else a)


@tf_op("LogMatrixDeterminant")
def slogdet(ctx: TfContext, a: Tensor) -> list[Tensor]:
    """Return the sign of each determinant, and the logarithm of its size."""
    return [*matrices.slogdet(ctx.g, a)]


@tf_op("MatrixDeterminant")
def determinant(ctx: TfContext, a: Tensor) -> Tensor:
    """Return each determinant."""
    sign, size = matrices.slogdet(ctx.g, a)
    return emit.elementwise(ctx.g, "mul", sign, emit.unary("exp")(ctx.g, size))


@tf_op("SelfAdjointEigV2")
def eigh(ctx: TfContext, a: Tensor, *, compute_v: bool = True) -> list[Tensor]:
    """Return a symmetric matrix' eigenvalues, from the smallest on, and vectors as columns."""
    values, vectors = matrices.eigh(ctx.g, _mirrored(ctx, a))
    return [values, vectors] if compute_v else [values]


def _mirrored(ctx: TfContext, a: Tensor) -> Tensor:
    """Repeat the lower triangle above the diagonal: it alone gets a gradient."""
    g, size = ctx.g, a.shape[-1]
    low = np.tril(np.ones((size, size), np.float32))
    lower = emit.elementwise(g, "mul", a, plain(g.constant(low)))
    strict = emit.elementwise(g, "mul", a, plain(g.constant(low - np.eye(size, dtype=np.float32))))
    return emit.elementwise(g, "add", lower, turned(strict))


@tf_op("Qr")
def qr(ctx: TfContext, a: Tensor, *, full_matrices: bool = False) -> list[Tensor]:
    """Return q with orthonormal columns and the upper r, q r = a."""
    if full_matrices and a.shape[-2] > a.shape[-1]:
        raise Unsupported("factors with more columns than the matrix; say full_matrices=False")
    return [*matrices.qr(ctx.g, a)]


@tf_op("Svd")
def svd(
    ctx: TfContext, a: Tensor, *, compute_uv: bool = True, full_matrices: bool = False
) -> list[Tensor]:
    """Return singular values in descending order, and left and right vectors as columns."""
    if compute_uv and full_matrices and a.shape[-1] != a.shape[-2]:
        raise Unsupported("vectors that complete those of singular values; say full_matrices=False")
    left, values, right = matrices.svd(ctx.g, a)
    return [values, left, right] if compute_uv else [values]
