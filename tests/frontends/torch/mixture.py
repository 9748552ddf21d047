"""A mixture of experts; tests supply its routing."""

from collections.abc import Callable

import torch
from torch import nn

Route = Callable[[nn.ModuleList, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

EXPERTS = 3


class Mixture(nn.Module):
    """Experts over rows of 6 features; a route sends each row to two experts; a scalar loss."""

    def __init__(self, route: Route) -> None:
        super().__init__()
        self.gate = nn.Linear(6, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 6)) for _ in range(EXPERTS)
        )
        self.route = route

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.topk(self.gate(x), 2)
        return (self.route(self.experts, x, chosen, weights.softmax(-1)) * x.cos()).sum()
