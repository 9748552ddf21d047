"""Operators at zeros, ties, kinks, limits and NaN: results and gradients beside eager PyTorch's."""

import functools
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

from pockengine.compiler.ir import Graph
from pockengine.frontends.torch.aten.registry import RULES
from pockengine.tests.frontends.edges.check import (
    Cases,
    EdgeCase,
    Expected,
    by_oracle,
    differences,
    eager,
    imported,
    inputs_of,
)
from pockengine.tests.frontends.edges.compiled import by_c
from pockengine.tests.frontends.edges.elementwise_cases import elementwise_cases
from pockengine.tests.frontends.edges.exempt import BY_CPU, EXEMPT, IN_C, place_of
from pockengine.tests.frontends.edges.layer_cases import layer_cases
from pockengine.tests.frontends.edges.loss_cases import loss_cases
from pockengine.tests.frontends.edges.reduction_cases import reduction_cases

GROUPS: dict[str, Callable[[], Iterable[EdgeCase]]] = {
    "elementwise": elementwise_cases,
    "layer": layer_cases,
    "loss": loss_cases,
    "reduction": reduction_cases,
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

Rule = Callable[..., object]


@functools.cache
def prepared(group: str) -> tuple[Cases, Expected, Graph, frozenset[Rule]]:
    """Return a group's cases, PyTorch's results, the imported graph, and the rules it took."""
    torch.set_num_threads(1)
    module, used = Cases(list(GROUPS[group]())), set[Rule]()
    with pytest.MonkeyPatch.context() as patch:
        for name, rule in RULES.items():
            patch.setitem(RULES, name, _recording(rule, used))
        graph = imported(module)
    return module, eager(module), graph, frozenset(used)


def _recording(rule: Rule, used: set[Rule]) -> Rule:
    @functools.wraps(rule)
    def recorded(*args: object, **kwargs: object) -> object:
        used.add(rule)
        return rule(*args, **kwargs)

    return recorded


def wrong_places(group: str, found: dict[str, np.ndarray]) -> dict[str, str]:
    module, expected, graph, _ = prepared(group)
    return {place_of(text): text for text in differences(module, graph, found, expected)}


def by_oracle_of(group: str) -> dict[str, np.ndarray]:
    module, _, graph, _ = prepared(group)
    with np.errstate(all="ignore"):
        return by_oracle(module, graph)


@pytest.mark.parametrize("group", GROUPS)
def test_edges_are_pytorchs_by_the_oracle(group: str) -> None:
    wrong = wrong_places(group, by_oracle_of(group))
    assert not [text for place, text in wrong.items() if place not in EXEMPT | BY_CPU]


@pytest.mark.parametrize("group", GROUPS)
def test_edges_are_pytorchs_in_generated_c(group: str) -> None:
    module, _, graph, _ = prepared(group)
    wrong = wrong_places(group, by_c(graph, inputs_of(module, graph)))
    assert not [text for place, text in wrong.items() if place not in EXEMPT | BY_CPU | IN_C]


def test_each_exemption_is_needed() -> None:
    places = {place for group in GROUPS for place in wrong_places(group, by_oracle_of(group))}
    assert sorted(set(EXEMPT) - places) == []


def test_each_rule_of_the_registry_has_a_case() -> None:
    used = frozenset[Rule]().union(*(prepared(group)[3] for group in GROUPS))
    untested = sorted(name for name, rule in RULES.items() if rule not in used)
    assert [name for name in untested if name.split(".")[0] not in ELSEWHERE] == []
