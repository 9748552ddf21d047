"""ATen operators of linear algebra: factors, equations, determinants, eigenvalues."""

from collections.abc import Sequence

from pockengine.compiler.ir import I32
from pockengine.frontends import emit
from pockengine.frontends.emit import matrices as emit_matrices
from pockengine.frontends.emit.matrices import turned
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, reshape
from pockengine.frontends.torch.aten.registry import AtenContext, Missing, aten

FACTORS = Missing("what an equation's solution leaves behind; use the solution alone")

FULL = Missing("vectors that complete those of singular values; use full_matrices=False")


@aten("linalg_cholesky.default", "cholesky.default")
def cholesky(ctx: AtenContext, x: Tensor, upper: bool) -> Tensor:
    """Return the triangle whose product with its transpose is x."""
    low = emit_matrices.cholesky(ctx.g, turned(x) if upper else x)
    return turned(low) if upper else low


@aten("linalg_cholesky_ex.default")
def cholesky_ex(
    ctx: AtenContext, x: Tensor, upper: bool, check_errors: bool
) -> list[Tensor | Missing]:
    """Return the triangle, with NaN for matrices that have none."""
    return [cholesky(ctx, x, upper), FACTORS]


@aten("linalg_solve_triangular.default")
def solve_triangular(
    ctx: AtenContext, x: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool
) -> Tensor:
    """Solve x y = B, or y x = B, of one of x's triangles."""
    g = ctx.g
    if left:
        return emit_matrices.triangular_solve(g, x, B, lower=not upper, unit=unitriangular)
    y = emit_matrices.triangular_solve(
        g, x, turned(B), lower=not upper, transpose=True, unit=unitriangular
    )
    return turned(y)


@aten("triangular_solve.default")
def triangular_solve(
    ctx: AtenContext, x: Tensor, A: Tensor, upper: bool, transpose: bool, unitriangular: bool
) -> list[Tensor | Missing]:
    """Solve A y = x, or Aᵀ y = x, of one of A's triangles."""
    y = emit_matrices.triangular_solve(
        ctx.g, A, x, lower=not upper, transpose=transpose, unit=unitriangular
    )
    return [y, FACTORS]


@aten("cholesky_solve.default")
def cholesky_solve(ctx: AtenContext, x: Tensor, input2: Tensor, upper: bool) -> Tensor:
    """Solve l lᵀ y = x, given l, or its transpose."""
    half = emit_matrices.triangular_solve(ctx.g, input2, x, lower=not upper, transpose=upper)
    return emit_matrices.triangular_solve(ctx.g, input2, half, lower=not upper, transpose=not upper)


@aten("cholesky_inverse.default")
def cholesky_inverse(ctx: AtenContext, x: Tensor, upper: bool) -> Tensor:
    """Invert l lᵀ, given l, or its transpose."""
    return cholesky_solve(ctx, emit_matrices.identities(ctx.g, x), x, upper)


@aten("linalg_solve.default")
def solve(ctx: AtenContext, A: Tensor, B: Tensor, left: bool) -> Tensor:
    """Solve A y = B, or y A = B; B may hold a vector for each matrix."""
    vector = B.rank == 1 or B.shape == A.shape[:-1]
    right = reshape(ctx.g, B, (*B.shape, 1)) if vector else B
    if left:
        y = emit_matrices.solve(ctx.g, A, right)
    else:
        y = turned(emit_matrices.solve(ctx.g, turned(A), turned(right)))
    return emit.squeeze(ctx.g, y, [-1]) if vector else y


@aten("_linalg_solve_ex.default")
def solve_ex(
    ctx: AtenContext, A: Tensor, B: Tensor, left: bool, check_errors: bool
) -> list[Tensor | Missing]:
    """Solve A y = B."""
    return [solve(ctx, A, B, left), FACTORS, FACTORS, FACTORS]


@aten("linalg_qr.default")
def qr(ctx: AtenContext, A: Tensor, mode: str) -> list[Tensor]:
    """Return q with orthonormal columns, and the upper r."""
    rows, columns = A.shape[-2:]
    if mode == "complete" and rows > columns:
        raise Unsupported("columns that complete those of q; use mode='reduced'")
    return [*emit_matrices.qr(ctx.g, A)]


@aten("qr.default")
def old_qr(ctx: AtenContext, x: Tensor, some: bool) -> list[Tensor]:
    """Return q with orthonormal columns, and the upper r."""
    return qr(ctx, x, "reduced" if some else "complete")


@aten("linalg_lu_factor_ex.default", "_lu_with_info.default")
def lu_factor_ex(
    ctx: AtenContext,
    A: Tensor | None = None,
    x: Tensor | None = None,
    pivot: bool = True,
    check_errors: bool = False,
) -> list[Tensor | Missing]:
    """Return both triangles in one matrix, and the row that each was exchanged with, from 1 on."""
    a = A if x is None else x
    assert a is not None
    if not pivot:
        raise Unsupported("factors without exchanges of rows; use pivot=True")
    packed, _, exchanges = emit_matrices.lu(ctx.g, a)
    return [packed, emit.cast(ctx.g, emit.arithmetic(ctx.g, "add", exchanges, 1), I32), FACTORS]


@aten("_linalg_check_errors.default")
def check_errors(ctx: AtenContext, info: Tensor, api_name: str, is_matrix: bool) -> None:
    """Return no error; unsolvable systems give NaN."""


@aten("inverse.default", "linalg_inv.default")
def inverse(ctx: AtenContext, x: Tensor | None = None, A: Tensor | None = None) -> Tensor:
    """Invert each matrix."""
    a = A if x is None else x
    assert a is not None
    return emit_matrices.inverse(ctx.g, a)


@aten("linalg_inv_ex.default")
def inv_ex(ctx: AtenContext, A: Tensor, check_errors: bool) -> list[Tensor | Missing]:
    """Invert each matrix; singular ones give NaN."""
    return [inverse(ctx, A), FACTORS]


@aten("_linalg_slogdet.default")
def slogdet(ctx: AtenContext, A: Tensor) -> list[Tensor | Missing]:
    """Return the sign of each determinant, and the logarithm of its size."""
    return [*emit_matrices.slogdet(ctx.g, A), FACTORS, FACTORS]


@aten("_linalg_det.default")
def det(ctx: AtenContext, A: Tensor) -> list[Tensor | Missing]:
    """Return each determinant."""
    return [emit_matrices.det(ctx.g, A), FACTORS, FACTORS]


@aten("_linalg_eigh.default")
def eigh(ctx: AtenContext, A: Tensor, UPLO: str, compute_v: bool) -> list[Tensor]:
    """Return the eigenvalues of a symmetric matrix, from the smallest on, and their vectors."""
    return [*emit_matrices.eigh(ctx.g, A if UPLO.upper() == "L" else turned(A))]


@aten("_linalg_svd.default")
def svd(
    ctx: AtenContext, A: Tensor, full_matrices: bool, compute_uv: bool, driver: str | None
) -> list[Tensor | Missing]:
    """Return left vectors, singular values in descending order, and right vectors as rows."""
    left, values, right = emit_matrices.svd(ctx.g, A)
    results: Sequence[Tensor | Missing] = (left, values, turned(right))
    rows, columns = A.shape[-2:]
    if not compute_uv:
        return [FULL, values, FULL]
    if not full_matrices or rows == columns:
        return [*results]
    return [FULL, *results[1:]] if rows > columns else [*results[:2], FULL]
