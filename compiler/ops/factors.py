"""QR and LU factorizations of matrices (..., m, n) with m >= n.

    qr(a)  (..., m + n, n): q with orthonormal columns above the upper r, with q r = a
    lu(a)  (..., m, n + 2): the lower l without its unit diagonal and the upper u in one
           matrix; the permutation of a's rows; the pivot of each row

With p the rows of a in their new order, l u = p. Signs and pivots are LAPACK's. A matrix with NaN
or infinity gives NaN. A wide matrix is composed of the factors of its first m columns.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import I64, TensorType
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


def _tall(op: str, a: TensorType) -> tuple[tuple[int, ...], int, int]:
    """Return the batch, rows and columns."""
    check_matrix(op, a, square=False)
    *batch, rows, columns = a.shape
    if rows < columns:
        raise GraphError(f"{op} needs as many rows as columns or more, not {a}")
    return tuple(batch), rows, columns


def _infer_qr(types: Types, attrs: Attrs) -> Types:
    batch, rows, columns = _tall("qr", types[0])
    return (types[0].with_shape((*batch, rows + columns, columns)),)


def _infer_lu(types: Types, attrs: Attrs) -> Types:
    batch, rows, columns = _tall("lu", types[0])
    return (types[0].with_shape((*batch, rows, columns + 2)),)


def _eval_lu(a: np.ndarray) -> np.ndarray:
    rows, columns = a.shape
    packed, order, exchanged = a.copy(), np.arange(rows), np.arange(rows)
    for i in range(columns):
        best = i + int(np.abs(packed[i:, i]).argmax())
        exchanged[i] = best
        for array in (packed, order):
            array[[i, best]] = array[[best, i]]
        if packed[i, i] != 0:
            packed[i + 1 :, i] /= packed[i, i]
            packed[i + 1 :, i + 1 :] -= np.outer(packed[i + 1 :, i], packed[i, i + 1 :])
    return np.concatenate([packed, order[:, None], exchanged[:, None]], 1)


def _qr_da(g: "Builder", node: Node, dy: Value) -> Value:
    """Q r = a  =>  da = (dq + q s) r⁻ᵀ.

    s is the symmetric matrix with the lower half of r drᵀ - dqᵀ q.
    """
    rows, size = node.operands[0].shape[-2:]
    (q, r), (dq, dr) = (
        (rows_of(g, x, 0, rows), rows_of(g, x, rows, rows + size)) for x in (node.result, dy)
    )
    dr = masked(g, dr, np.triu(np.ones((size, size))))
    m = g.sub(g.matmul(r, dr, transpose_b=True), g.matmul(dq, q, transpose_a=True))
    low = masked(g, m, np.tril(np.ones((size, size))))
    below = masked(g, m, np.tril(np.ones((size, size)), -1))
    inner = g.add(dq, g.matmul(q, g.add(low, turned(g, below))))
    return turned(g, g.triangular_solve(r, turned(g, inner), lower=False))


def _lu_da(g: "Builder", node: Node, dy: Value) -> Value:
    """L u = p  =>  dp = l⁻ᵀ (lower(lᵀ dl) + upper(du uᵀ)) u⁻ᵀ, in a's order of rows.

    Rows below the square are l₂ = p₂ u⁻¹: their dp₂ = dl₂ u⁻ᵀ, and -l₂ᵀ dp₂ joins du.
    """
    rows, size = node.operands[0].shape[-2:]
    packed, dpacked = (_columns(g, x, 0, size) for x in (node.result, dy))
    square, dsquare = (rows_of(g, x, 0, size) for x in (packed, dpacked))
    upper, below = np.triu(np.ones((size, size))), np.tril(np.ones((size, size)), -1)
    du = masked(g, dsquare, upper)
    parts = []
    if rows > size:
        below_square, dbelow_square = (rows_of(g, x, size, rows) for x in (packed, dpacked))
        parts = [_over(g, dbelow_square, square)]
        du = g.sub(du, masked(g, g.matmul(below_square, parts[0], transpose_a=True), upper))
    low = g.add(masked(g, square, below), g.constant(_ones(square)))
    inner = masked(g, g.matmul(low, masked(g, dsquare, below), transpose_a=True), below)
    u = masked(g, square, upper)
    inner = g.add(inner, masked(g, g.matmul(du, u, transpose_b=True), upper))
    left = g.triangular_solve(square, inner, transpose=True, unit=True)
    dp = g.concat(_over(g, left, square), *parts, axis=len(dy.shape) - 2)
    order = g.cast(_columns(g, node.result, size, size + 1), dtype=I64)
    places = g.broadcast_to(order, shape=dp.shape)
    return g.take_along_dx(dp, places, axis=len(dp.shape) - 2, input_shape=dp.shape)


def _columns(g: "Builder", x: Value, start: int, stop: int) -> Value:
    """Slice columns of each matrix."""
    first = (*(0 for _ in x.shape[:-1]), start)
    return g.slice(x, start=first, stop=(*x.shape[:-1], stop), step=(1,) * len(x.shape))


def _over(g: "Builder", x: Value, u: Value) -> Value:
    """Return x u⁻ᵀ for the upper triangle u."""
    return turned(g, g.triangular_solve(u, turned(g, x), lower=False))


def _ones(x: Value) -> np.ndarray:
    return np.broadcast_to(np.eye(x.shape[-1], dtype=np.float32), x.shape).copy()


define(
    "qr",
    "a",
    infer=_infer_qr,
    eval=each_matrix(lambda a: np.concatenate(np.linalg.qr(a)), _infer_qr),
    vjp={"a": _qr_da},
    cost=matrix_cost(2),
)
define(
    "lu",
    "a",
    infer=_infer_lu,
    eval=each_matrix(_eval_lu, _infer_lu),
    vjp={"a": _lu_da},
    cost=matrix_cost(1),
)
