"""Cholesky, solves, determinant and eigenvalues of (..., n, n), and singular values of (..., m, n).

    cholesky(a)             the lower l with l lᵀ = a, of a's lower triangle
    triangular_solve(a, b)  the x with a x = b, of a's lower or upper triangle; or aᵀ x = b
    solve(a, b)             the x with a x = b
    slogdet(a)              (..., 2): the determinant's sign, and log of its size
    eigh(a)                 (..., 1 + n, n): eigenvalues in ascending order, above their vectors
    svd(a)                  (..., 1 + m + n, min(m, n)): singular values, left and right vectors

The last two pack several results into one, because gradients flow to an op's first result only.
Signs are normalized: the largest element of an eigenvector or left singular vector is positive. A
matrix without such a factor, or a singular one, gives NaN. Kernels are plain loops, meant for small
matrices.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pockengine.compiler.ir.graph import Node, Value
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.ops.registry import Arrays, Types, define
from pockengine.errors import GraphError

if TYPE_CHECKING:
    from pockengine.compiler.ir.build import Builder

Attrs = Mapping[str, Any]
TRIANGLE = {"lower": True, "transpose": False, "unit": False}


def check_matrix(op: str, a: TensorType, *, square: bool = True) -> None:
    """Raise GraphError unless these are (square) matrices of f32."""
    if a.rank < 2 or a.dtype is not F32 or (square and a.shape[-1] != a.shape[-2]):
        raise GraphError(f"{op} needs {'square ' if square else ''}f32 matrices, not {a}")


def _infer_cholesky(types: Types, attrs: Attrs) -> Types:
    check_matrix("cholesky", types[0])
    return types


def _infer_solve(types: Types, attrs: Attrs) -> Types:
    a, b = types
    check_matrix("solve", a)
    if b.dtype is not F32 or b.rank != a.rank or b.shape[:-1] != a.shape[:-1]:
        raise GraphError(f"solve of {a} needs right sides (..., {a.shape[-1]}, k), not {b}")
    return (b,)


def _infer_slogdet(types: Types, attrs: Attrs) -> Types:
    check_matrix("slogdet", types[0])
    return (types[0].with_shape((*types[0].shape[:-2], 2)),)


def _infer_eigh(types: Types, attrs: Attrs) -> Types:
    check_matrix("eigh", types[0])
    *batch, size, _ = types[0].shape
    return (types[0].with_shape((*batch, 1 + size, size)),)


def _infer_svd(types: Types, attrs: Attrs) -> Types:
    check_matrix("svd", types[0], square=False)
    *batch, rows, columns = types[0].shape
    return (types[0].with_shape((*batch, 1 + rows + columns, min(rows, columns))),)


def each_matrix(
    function: Callable[..., np.ndarray], types: Callable[..., Types]
) -> Callable[..., Any]:
    """Apply a function of double matrices to each; failure gives NaN."""

    def meaning(arrays: Arrays, attrs: Attrs) -> Arrays:
        (result,) = types(tuple(TensorType(F32, x.shape) for x in arrays), attrs)
        y = np.full(result.shape, np.nan)
        batch = arrays[0].shape[:-2]
        for place in np.ndindex(*batch):
            operands = [x[place].astype(np.float64) for x in arrays]
            if all(np.isfinite(x).all() for x in operands):
                try:
                    y[place] = function(*operands, **attrs)
                except np.linalg.LinAlgError:
                    continue
        return (y.astype(np.float32),)

    return meaning


def _eval_triangular(
    a: np.ndarray, b: np.ndarray, lower: bool, transpose: bool, unit: bool
) -> np.ndarray:
    half = np.tril(a) if lower else np.triu(a)
    if unit:
        np.fill_diagonal(half, 1)
    return np.asarray(np.linalg.solve(half.T if transpose else half, b))


def _eval_eigh(a: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(a)
    return np.concatenate([values[None], vectors * _signs(vectors)])


def _eval_svd(a: np.ndarray) -> np.ndarray:
    left, values, right = np.linalg.svd(a, full_matrices=False)
    signs = _signs(left)
    return np.concatenate([values[None], left * signs, right.T * signs])


def _signs(vectors: np.ndarray) -> np.ndarray:
    """Return the sign of the largest element of each column."""
    largest = np.abs(vectors).argmax(0)
    return np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def turned(g: "Builder", x: Value) -> Value:
    """Transpose each matrix."""
    rank = len(x.shape)
    return g.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def rows_of(g: "Builder", x: Value, start: int, stop: int) -> Value:
    """Slice rows of each matrix."""
    *batch, _, columns = x.shape
    first = (*(0 for _ in batch), start, 0)
    return g.slice(x, start=first, stop=(*batch, stop, columns), step=(1,) * len(x.shape))


def masked(g: "Builder", x: Value, mask: np.ndarray) -> Value:
    """Multiply each matrix by a constant."""
    return g.mul(x, g.constant(mask.astype(np.float32)))


def _cholesky_da(g: "Builder", node: Node, dy: Value) -> Value:
    """L lᵀ = a => da = l⁻ᵀ p l⁻¹ made symmetric.

    p is the lower triangle of lᵀ dl with its diagonal halved.
    """
    low = node.result
    size = low.shape[-1]
    half = np.tril(np.ones((size, size))) - 0.5 * np.eye(size)
    inner = masked(g, g.matmul(low, dy, transpose_a=True), half)
    left = g.triangular_solve(low, inner, transpose=True)
    return _symmetric(g, g.triangular_solve(low, turned(g, left), transpose=True))


def _symmetric(g: "Builder", x: Value) -> Value:
    return g.mul(g.add(x, turned(g, x)), g.scalar(0.5))


def _triangular_db(g: "Builder", node: Node, dy: Value) -> Value:
    """A x = b  =>  db = a⁻ᵀ dx."""
    attrs = {**node.attrs, "transpose": not node.attrs["transpose"]}
    return g.triangular_solve(node.operands[0], dy, **attrs)


def _triangular_da(g: "Builder", node: Node, dy: Value) -> Value:
    """A x = b  =>  da = -db xᵀ, restricted to the triangle; transposed for aᵀ x = b."""
    db, x, size = _triangular_db(g, node, dy), node.result, dy.shape[-2]
    if node.attrs["transpose"]:
        db, x = x, db
    half = np.tril(np.ones((size, size)), -int(node.attrs["unit"]))
    return masked(g, g.matmul(db, x, transpose_b=True), -half if node.attrs["lower"] else -half.T)


def _solve_db(g: "Builder", node: Node, dy: Value) -> Value:
    """A x = b  =>  db = a⁻ᵀ dx."""
    return g.solve(turned(g, node.operands[0]), dy)


def _solve_da(g: "Builder", node: Node, dy: Value) -> Value:
    """A x = b  =>  da = -db xᵀ."""
    return g.neg(g.matmul(_solve_db(g, node, dy), node.result, transpose_b=True))


def _slogdet_da(g: "Builder", node: Node, dy: Value) -> Value:
    """y = log |det a|  =>  da = dy a⁻ᵀ; the sign is constant."""
    (a,) = node.operands
    *batch, size, _ = a.shape
    unit = g.constant(np.broadcast_to(np.eye(size, dtype=np.float32), a.shape).copy())
    start, stop = (*(0 for _ in batch), 1), (*batch, 2)
    slope = g.slice(dy, start=start, stop=stop, step=(1,) * len(stop))
    return g.mul(g.solve(turned(g, a), unit), g.reshape(slope, shape=(*batch, 1, 1)))


def _gaps(g: "Builder", values: Value) -> Value:
    """Return 1 / (v_j - v_i) for values (..., 1, n), and 0 for equal values."""
    gaps = g.sub(values, turned(g, values))
    equal = g.eq(gaps, g.scalar(0.0))
    return g.where(equal, g.scalar(0.0), g.reciprocal(g.where(equal, g.scalar(1.0), gaps)))


def _eigh_da(g: "Builder", node: Node, dy: Value) -> Value:
    """da = v (diag(dw) + vᵀ dv / (w_j - w_i)) vᵀ, made symmetric."""
    size = node.result.shape[-1]
    values, vectors = rows_of(g, node.result, 0, 1), rows_of(g, node.result, 1, 1 + size)
    dw, dv = rows_of(g, dy, 0, 1), rows_of(g, dy, 1, 1 + size)
    turned = g.mul(g.matmul(vectors, dv, transpose_a=True), _gaps(g, values))
    inner = g.add(turned, masked(g, dw, np.eye(size)))
    return _symmetric(g, g.matmul(g.matmul(vectors, inner), vectors, transpose_b=True))


def _svd_da(g: "Builder", node: Node, dy: Value) -> Value:
    """da = u ((k(uᵀ du) / e) s + s (k(vᵀ dv) / e) + diag(ds)) vᵀ, plus an orthogonal term.

    k(x) = x - xᵀ and e_ij = s_j² - s_i². With more rows than columns (1 - u uᵀ) du s⁻¹ vᵀ is added,
    with more columns u s⁻¹ dvᵀ (1 - v vᵀ).
    """
    *_, rows, columns = node.operands[0].shape
    size = min(rows, columns)
    s, u, v = _parts(g, node.result, rows, columns)
    ds, du, dv = _parts(g, dy, rows, columns)
    gaps = _gaps(g, g.square(s))

    def inner(x: Value, dx: Value) -> Value:
        product = g.matmul(x, dx, transpose_a=True)
        return g.mul(g.sub(product, turned(g, product)), gaps)

    within = g.add(g.mul(inner(u, du), s), g.mul(turned(g, s), inner(v, dv)))
    within = g.add(within, masked(g, ds, np.eye(size)))
    da = g.matmul(g.matmul(u, within), v, transpose_b=True)
    if rows > size:
        da = g.add(da, g.matmul(g.div(_outside(g, u, du), s), v, transpose_b=True))
    if columns > size:
        da = g.add(da, g.matmul(g.div(u, s), _outside(g, v, dv), transpose_b=True))
    return da


def _parts(g: "Builder", x: Value, rows: int, columns: int) -> tuple[Value, Value, Value]:
    ends = (0, 1, 1 + rows, 1 + rows + columns)
    first, second, third = (rows_of(g, x, *ends[i : i + 2]) for i in range(3))
    return first, second, third


def _outside(g: "Builder", x: Value, dx: Value) -> Value:
    """dx without its projection onto x's columns."""
    return g.sub(dx, g.matmul(x, g.matmul(x, dx, transpose_a=True)))


def matrix_cost(share: float) -> Callable[[Node], int]:
    """Multiply-adds per matrix: a fraction of n² times the columns of the result."""

    def cost(node: Node) -> int:
        rows = node.operands[0].shape[-2]
        return int(share * rows * max(node.operands[-1].type.size, node.operands[0].type.size))

    return cost


define(
    "cholesky",
    "a",
    infer=_infer_cholesky,
    eval=each_matrix(lambda a: np.linalg.cholesky(np.tril(a) + np.tril(a, -1).T), _infer_cholesky),
    vjp={"a": _cholesky_da},
    cost=matrix_cost(1 / 3),
)
define(
    "triangular_solve",
    "a b",
    attrs=TRIANGLE,
    infer=_infer_solve,
    eval=each_matrix(_eval_triangular, _infer_solve),
    vjp={"a": _triangular_da, "b": _triangular_db},
    linear=(1,),
    cost=matrix_cost(1 / 2),
)
define(
    "solve",
    "a b",
    infer=_infer_solve,
    eval=each_matrix(np.linalg.solve, _infer_solve),
    vjp={"a": _solve_da, "b": _solve_db},
    linear=(1,),
    cost=matrix_cost(4 / 3),
)
define(
    "slogdet",
    "a",
    infer=_infer_slogdet,
    eval=each_matrix(lambda a: np.stack(np.linalg.slogdet(a)), _infer_slogdet),
    vjp={"a": _slogdet_da},
    cost=matrix_cost(1 / 3),
)
define(
    "eigh",
    "a",
    infer=_infer_eigh,
    eval=each_matrix(lambda a: _eval_eigh(np.tril(a) + np.tril(a, -1).T), _infer_eigh),
    vjp={"a": _eigh_da},
    cost=matrix_cost(20),
)
define(
    "svd",
    "a",
    infer=_infer_svd,
    eval=each_matrix(_eval_svd, _infer_svd),
    vjp={"a": _svd_da},
    cost=matrix_cost(20),
)
