"""Compare our oracle's results and gradients of a function with PyTorch's."""

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import (
    Function,
    arrays_of,
    check_forward,
    relative_error,
)


class Shifted(nn.Module):
    """Applies a function to the input plus a parameter, whose gradient is the function's."""

    def __init__(
        self, function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.function = function
        self.shift = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x + self.shift)


def check_function(
    function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    """Compare a function of one tensor and its gradient with PyTorch's, within 1e-4."""
    model, x = Shifted(function, shape), torch.randn(shape)
    check_forward(model, x)
    weights = torch.randn_like(model(x))
    expected = copy.deepcopy(model)
    (expected(x) * weights).sum().backward()
    graph = from_torch(Function(_weighted(model, weights)), (x,))
    g = Builder(graph)
    (shift,) = graph.params.values()
    g.output("gradient", backward(g, graph.outputs["loss"], {shift.value: None})[shift.value])
    found = run(graph, arrays_of(graph, (x,)))["gradient"]
    if shift.permutation is not None:
        found = found.transpose(np.argsort(shift.permutation))
    assert relative_error(found, expected.shift.grad) <= 1e-4


def _weighted(model: nn.Module, weights: torch.Tensor) -> nn.Module:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.model(x) * weights).sum()

    return Weighted()
