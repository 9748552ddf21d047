"""Linear algebra of small matrices: results and gradients equal PyTorch's; a net in C."""

from collections.abc import Callable

import pytest
import torch
from torch import linalg, nn

from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function
from pockengine.tests.frontends.torch.compiled import check_steps
from pockengine.tests.frontends.torch.gradients import check_function

BATCH = (2, 4, 4)


def invertible(x: torch.Tensor) -> torch.Tensor:
    """Make invertible matrices."""
    return x / 4 + torch.diag(torch.arange(1.0, 5.0))


def turned(x: torch.Tensor) -> torch.Tensor:
    """Make invertible matrices whose LU decomposition must exchange rows."""
    return invertible(x)[:, [1, 0, 3, 2]]


def definite(x: torch.Tensor) -> torch.Tensor:
    return invertible(x) @ invertible(x).mT


def signed(x: torch.Tensor) -> torch.Tensor:
    """Make symmetric matrices with eigenvalues of both signs, all far from zero."""
    return (x + x.mT) / 8 + torch.diag(torch.tensor([2.0, -3.0, 4.0, -5.0]))


def of_svd(x: torch.Tensor) -> torch.Tensor:
    left, values, right = linalg.svd(x, full_matrices=False)
    return left.square() @ torch.diag_embed(values) @ right.square()


def of_qr(x: torch.Tensor) -> torch.Tensor:
    return linalg.qr(x)[0] @ linalg.qr(x)[1].square()


def of_lu(x: torch.Tensor) -> torch.Tensor:
    order, low, upper = linalg.lu(x)
    return (order @ low).square() @ upper.square()


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cholesky": lambda x: linalg.cholesky(definite(x)),
    "upper cholesky": lambda x: torch.linalg.cholesky_ex(definite(x), upper=True)[0],
    "cholesky solve": lambda x: torch.cholesky_solve(x, linalg.cholesky(definite(x))),
    "cholesky inverse": lambda x: torch.cholesky_inverse(linalg.cholesky(definite(x)).mT, True),
    "triangle": lambda x: linalg.solve_triangular(invertible(x).tril(), x[:1], upper=False),
    "triangle on the right": lambda x: linalg.solve_triangular(
        invertible(x).triu(), x, upper=True, left=False, unitriangular=True
    ),
    "old triangular solve": lambda x: torch.triangular_solve(x, invertible(x), transpose=True)[0],
    "solve": lambda x: linalg.solve(invertible(x), x[..., :3]),
    "solve for vectors": lambda x: linalg.solve(invertible(x), x[..., 0]),
    "solve on the right": lambda x: linalg.solve(invertible(x), x, left=False),
    "inverse": lambda x: linalg.inv(invertible(x)) + torch.inverse(invertible(x) + 1),
    "inverse without a check": lambda x: linalg.inv_ex(invertible(x))[0],
    "determinant": lambda x: linalg.det(invertible(x)) + torch.logdet(definite(x)),
    "logarithm of the determinant": lambda x: linalg.slogdet(-invertible(x))[1],
    "eigenvalues": lambda x: linalg.eigvalsh(definite(x), UPLO="U"),
    "eigenvectors": lambda x: linalg.eigh(definite(x))[1].square(),
    "singular vectors": lambda x: of_svd(invertible(x)),
    "singular vectors of tall matrices": lambda x: of_svd(invertible(x)[..., :2]),
    "singular vectors of wide matrices": lambda x: of_svd(invertible(x)[:, :3]),
    "qr": lambda x: torch.cat(linalg.qr(turned(x)), -2),
    "qr of tall matrices": lambda x: of_qr(turned(x)[..., :2]),
    "qr of wide matrices": lambda x: of_qr(turned(x)[:, :3]),
    "lu": lambda x: torch.cat(linalg.lu(turned(x)), -2),
    "lu of tall matrices": lambda x: of_lu(turned(x)[..., :2]),
    "lu of wide matrices": lambda x: of_lu(turned(x)[:, :2]),
    "lu solve": lambda x: linalg.lu_solve(*linalg.lu_factor(turned(x)), x + 1),
    "lu solve on the right": lambda x: linalg.lu_solve(
        *linalg.lu_factor(turned(x)), x + 1, left=False, adjoint=True
    ),
    "old lu": lambda x: torch.lu_solve(x + 1, *torch.lu(turned(x))[:2]),
    "least squares": lambda x: linalg.lstsq(turned(x)[..., :2], x[..., 2:]).solution,
    "least squares of wide matrices": lambda x: linalg.lstsq(turned(x)[:, :2], x[:, 2:]).solution,
    "residuals": lambda x: linalg.lstsq(turned(x)[..., :2], x[..., 2:], driver="gels").residuals,
    "pseudoinverse": lambda x: (
        linalg.pinv(turned(x)[..., :2]) @ torch.pinverse(invertible(x)[0, :2])
    ),
    "pseudoinverse of a matrix without full rank": lambda x: linalg.pinv(
        turned(x)[..., :2] @ invertible(x)[:, :2], rtol=1e-3
    ),
    "pseudoinverse of a symmetric matrix": lambda x: linalg.pinv(signed(x), hermitian=True),
    "exponential": lambda x: linalg.matrix_exp(x - x.mT) + torch.matrix_exp(x / 5),
    "exponential of a far matrix": lambda x: linalg.matrix_exp(4 * (x - x.mT)),
    "reflections": lambda x: linalg.householder_product(x[..., :3], x[:, 0, :3]),
    "few reflections": lambda x: linalg.householder_product(x, x[:, 0, :2]),
    "product with reflections": lambda x: torch.ormqr(x[..., :3], x[:, 0, :3], x, True, True),
    "product with reflections on the right": lambda x: torch.ormqr(
        x[..., :3], x[:, 0, :3], x, False
    ),
    "inverse of a tensor": lambda x: linalg.tensorinv(invertible(x)[0].reshape(4, 2, 2), ind=1),
    "norms": lambda x: (
        linalg.matrix_norm(invertible(x), "nuc") + linalg.matrix_norm(invertible(x), 2)
    ),
    "normal distribution": lambda x: torch.distributions.MultivariateNormal(
        x[0, 0], definite(x[0])
    ).log_prob(x[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra_and_its_gradients_equal_pytorch(name: str) -> None:
    check_function(FUNCTIONS[name], BATCH)


def test_a_net_that_solves_trains_in_c_as_in_pytorch() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = definite(self.inner(x))
            values, vectors = linalg.eigh(a)
            solved = linalg.solve(a, x).sum(1) + torch.logdet(a)[:, None]
            radius = linalg.eigvals(self.inner(x)).abs().amax(-1, keepdim=True)
            return solved + values * radius + vectors.square()[:, 0]

    check_steps(Net(), [(torch.randn(3, 4, 4), torch.tensor([0, 1, 3]))] * 3, 0.01, resume=False)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: linalg.svd(x[:, :3])[2], ["full_matrices=False"]),
        (lambda x: linalg.qr(x[..., :2], mode="complete")[0], ["mode='reduced'"]),
    ],
)
def test_unsupported_operators_are_reported(
    function: Callable[[torch.Tensor], torch.Tensor], words: list[str]
) -> None:
    with pytest.raises(ImportModelError) as caught:
        from_torch(Function(function), (torch.randn(BATCH),))
    for word in words:
        assert word in str(caught.value)
