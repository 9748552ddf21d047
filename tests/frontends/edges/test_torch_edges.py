"""Operators at zeros, ties, kinks, limits and NaN: results and gradients beside eager PyTorch's."""

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
"""Operators that draw numbers, which are not PyTorch's."""

WRITING = ("fill_diagonal", "pockengine")
"""Operators that only writes in place and the user's own gradients reach; both have own tests."""


MATRICES = (
    *("_linalg_check_errors", "_linalg_det", "_linalg_eigh", "_linalg_slogdet", "_linalg_solve_ex"),
    *("_linalg_svd", "_lu_with_info", "linalg_lu_factor_ex", "linalg_qr", "qr"),
    *("cholesky", "cholesky_inverse", "cholesky_solve", "inverse", "linalg_cholesky"),
    *("linalg_cholesky_ex", "linalg_inv", "linalg_inv_ex", "linalg_solve"),
    *("linalg_solve_triangular", "triangular_solve"),
)
"""Operators of which each element depends on the whole matrix; they have tests of their own."""


PLACES = ("max_unpool2d", "max_unpool3d", "special_zeta", "item")
"""Operators of operands that are no edges (places, orders); they have tests of their own."""

LEVELS = ("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
"""Which make integers of infinities; `test_torch_definitions.py` has them."""

ELSEWHERE = {*RANDOM, *WRITING, *MATRICES, *PLACES, *LEVELS}


class TestEdges(EdgeTests):
    sweep = Sweep(torch_frontend, GROUPS)
    exempt, allowed, in_c = EXEMPT, BY_CPU, IN_C

    def test_each_rule_of_the_registry_has_a_case(self) -> None:
        for group in self.sweep.groups:
            self.sweep.prepare(group)
        untested = sorted(name for name, rule in RULES.items() if rule not in torch_frontend.USED)
        assert [name for name in untested if name.split(".")[0] not in ELSEWHERE] == []
