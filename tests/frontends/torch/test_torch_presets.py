"""Presets on layers with special parameter names in torch.nn."""

import pytest
import torch
from torch import nn

from pockengine.compiler.compile import compile_program
from pockengine.compiler.options import Training
from pockengine.frontends.torch.model import from_torch


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.shift = nn.Parameter(torch.zeros(12))
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[0][:, -1] + self.shift)


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(x, x, x)[0].mean(1))


class Crossing(Attentive):
    """Reads slices of the packed weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(x, x * 2, x + 1)[0].mean(1))


class SeparateWeights(Attentive):
    """Has three weights instead of a packed one."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, kdim=6, vdim=6, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = nn.functional.pad(x, (1, 1))
        return self.head(self.attention(x, keys, keys)[0].mean(1))


HEAD = {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("model", "preset", "trained"),
    [
        (
            Recurrent,
            "bias-only",
            {f"body.bias_{kind}_l0{end}" for kind in ("ih", "hh") for end in ("", "_reverse")}
            | {"shift"},
        ),
        (Attentive, "bias-only", {"attention.in_proj_bias", "attention.out_proj.bias"}),
        (
            Attentive,
            "lora-2",
            {"attention.in_proj_weight.lora_A", "attention.in_proj_weight.lora_B"},
        ),
        (
            Crossing,
            "lora-2",
            {"attention.in_proj_weight.lora_A", "attention.in_proj_weight.lora_B"},
        ),
        (
            SeparateWeights,
            "lora-2",
            {f"attention.{x}_proj_weight.lora_{y}" for x in "qv" for y in "AB"},
        ),
    ],
)
def test_preset_finds_its_params(model: type[nn.Module], preset: str, trained: set[str]) -> None:
    graph = from_torch(model(), (torch.randn(2, 5, 4),), loss="cross_entropy")

    assert set(compile_program(graph, Training(preset)).scheme) == trained | HEAD
