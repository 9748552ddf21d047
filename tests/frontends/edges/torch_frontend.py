"""Many small PyTorch functions joined into one module: results and gradients by both sides."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.compiler.ir import Graph
from pockengine.frontends.torch.aten.registry import RULES
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.edges.arrays import (
    ArrayCase,
    named_arrays,
    param_name,
    result_name,
    weights_of,
)

Rule = Callable[..., object]

USED: set[Rule] = set()
"""Import rules used so far."""


class Joined(nn.Module):
    """All cases' functions; returns their results, and the weighted sum of the float results."""

    def __init__(self, cases: Sequence[ArrayCase]) -> None:
        super().__init__()
        self.cases = list(cases)
        for name, array in named_arrays(cases, trained=True).items():
            self.register_parameter(name, nn.Parameter(torch.tensor(array)))

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        found, terms = {}, [torch.zeros(())]
        for number, case in enumerate(self.cases):
            names = [param_name(number, index) for index in range(len(case.arrays))]
            operands = [inputs[x] if x in inputs else self.get_parameter(x) for x in names]
            result = case.function(*operands)
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            for index, y in enumerate(results):
                found[result_name(number, index)] = y
                if y.is_floating_point():
                    terms.append((y * torch.from_numpy(weights_of(y.shape))).sum())
        return {**found, "loss": torch.stack(terms).sum()}


def feed(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Return the graph's inputs."""
    return named_arrays(cases, trained=False)


def _tensors(cases: Sequence[ArrayCase]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in feed(cases).items()}


def expected(cases: Sequence[ArrayCase]) -> dict[str, np.ndarray]:
    """Run the cases in eager PyTorch."""
    torch.set_num_threads(1)
    module = Joined(cases)
    found = module(**_tensors(cases))
    found["loss"].backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {
        **{name: y.detach().numpy().copy() for name, y in found.items()},
        **{f"gradient.{name}": (gradient + 0).numpy() for name, gradient in gradients.items()},
    }


def imported(cases: Sequence[ArrayCase]) -> Graph:
    """Import the cases and record the rules used."""
    with pytest.MonkeyPatch.context() as patch:
        for name, rule in RULES.items():
            patch.setitem(RULES, name, _recording(rule))
        return from_torch(Joined(cases), _tensors(cases))


def _recording(rule: Rule) -> Rule:
    @functools.wraps(rule)
    def recorded(*args: Any, **kwargs: Any) -> object:
        USED.add(rule)
        return rule(*args, **kwargs)

    return recorded
