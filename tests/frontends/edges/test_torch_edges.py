"""Operators at zeros, ties, kinks, limits and NaN: results and gradients beside eager PyTorch's."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

from pockengine.tests.frontends.edges.check import (
    Cases,
    EdgeCase,
    by_oracle,
    differences,
    eager,
    imported,
    inputs_of,
)
from pockengine.tests.frontends.edges.compiled import by_c
from pockengine.tests.frontends.edges.elementwise_cases import elementwise_cases
from pockengine.tests.frontends.edges.exempt import reason_of

GROUPS: dict[str, Callable[[], Iterable[EdgeCase]]] = {"elementwise": elementwise_cases}

IN_C = frozenset({"power of 1.5: gradient 0"})
"""Allowed in C alone: the C library's root of minus infinity is infinity, PyTorch's is NaN."""


@pytest.mark.parametrize("group", GROUPS)
def test_edges_are_pytorchs_by_the_oracle_and_in_c(group: str) -> None:
    torch.set_num_threads(1)
    module = Cases(list(GROUPS[group]()))
    expected, graph = eager(module), imported(module)
    with np.errstate(all="ignore"):
        found = {
            "oracle": by_oracle(module, graph),
            "C": by_c(graph, inputs_of(module, graph)),
        }
    wrong = {name: differences(module, graph, x, expected) for name, x in found.items()}
    for name, texts in wrong.items():
        unexplained = [text for text in texts if reason_of(text) is None]
        if name == "C":
            unexplained = [text for text in unexplained if _part(text) not in IN_C]
        assert not unexplained, f"{name}:\n" + "\n".join(unexplained)


def _part(difference: str) -> str:
    return ": ".join(difference.split(": ")[:2])
