"""The common models through PyTorch, and names.

Names in a PyTorch model cannot inject code into generated C.
"""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pockengine.compiler.ir import Graph
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.backends.c.tokens import ATTACKS, check_names
from pockengine.tests.zoo.common_measure import check
from pockengine.tests.zoo.common_torch import resnet, transformer


@pytest.mark.parametrize("build", [resnet, transformer])
def test_common_model_matches_our_own_ops(build: Callable[[], Graph]) -> None:
    check("torch", build.__name__, build())


def net(name: Callable[[str], str]) -> Graph:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_parameter(name("scale"), nn.Parameter(torch.ones(4)))
            self.register_buffer(name("shift"), torch.ones(4))
            self.add_module(name("inner"), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = getattr(self, name("inner"))(x)
            return y * getattr(self, name("scale")) + getattr(self, name("shift"))

    Scaled.__name__ = Scaled.__qualname__ = name("Scaled")
    return from_torch(Scaled(), (torch.ones(2, 3),), loss="cross_entropy")


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_names_change_no_token(attack: str) -> None:
    check_names(net, [attack.replace(".", "_")])  # a dot separates modules
