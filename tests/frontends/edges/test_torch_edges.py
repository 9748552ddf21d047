"""Results and gradients at zeros, ties, kinks, limits and NaN, compared with eager PyTorch."""

from pockengine.frontends.torch.aten.registry import RULES
from pockengine.tests.frontends.edges import torch_frontend
from pockengine.tests.frontends.edges.elementwise_cases import elementwise_cases
from pockengine.tests.frontends.edges.exempt import BY_CPU, EXEMPT, IN_C
from pockengine.tests.frontends.edges.layer_cases import layer_cases
from pockengine.tests.frontends.edges.loss_cases import loss_cases
from pockengine.tests.frontends.edges.reduction_cases import reduction_cases
from pockengine.tests.frontends.edges.sweep import EdgeTests, Sweep

GROUPS = {
    "elementwise": list(elementwise_cases()),
    "layer": list(layer_cases()),
    "loss": list(loss_cases()),
    "reduction": list(reduction_cases()),
}

RANDOM = (
    *("bernoulli", "bernoulli_", "binomial", "exponential", "geometric", "log_normal", "normal"),
    *(
        "_sample_dirichlet",
        "_standard_gamma",
        "multinomial",
        "normal_",
        "normal_functional",
        "poisson",
        "rand",
        "rand_like",
        "randint",
    ),
    *("randint_like", "randn", "randn_like", "random", "randperm", "rrelu", "uniform"),
)
"""Random operators: their numbers differ from PyTorch's."""

WRITING = ("fill_diagonal", "pockengine")
"""Operators of in-place writes and of custom gradients only; both have their own tests."""


MATRICES = (
    *("_linalg_check_errors", "_linalg_det", "_linalg_eigh", "_linalg_slogdet", "_linalg_solve_ex"),
    *("_linalg_svd", "_lu_with_info", "linalg_lu_factor_ex", "linalg_qr", "qr"),
    *("cholesky", "cholesky_inverse", "cholesky_solve", "inverse", "linalg_cholesky"),
    *("linalg_cholesky_ex", "linalg_inv", "linalg_inv_ex", "linalg_solve"),
    *("linalg_solve_triangular", "triangular_solve"),
)
"""Operators whose every element depends on the whole matrix; they have their own tests."""


PLACES = ("max_unpool2d", "max_unpool3d", "special_zeta", "item")
"""Operators whose operands are indices or orders, not edge values; they have their own tests."""

LEVELS = ("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
"""Operators that convert infinities to integers; `test_torch_definitions.py` tests them."""

ELSEWHERE = {*RANDOM, *WRITING, *MATRICES, *PLACES, *LEVELS}


class TestEdges(EdgeTests):
    sweep = Sweep(torch_frontend, GROUPS)
    exempt, allowed, in_c = EXEMPT, BY_CPU, IN_C

    def test_each_rule_of_the_registry_has_a_case(self) -> None:
        for group in self.sweep.groups:
            self.sweep.prepare(group)
        untested = sorted(name for name, rule in RULES.items() if rule not in torch_frontend.USED)
        assert [name for name in untested if name.split(".")[0] not in ELSEWHERE] == []
