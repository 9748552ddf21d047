"""Small pieces shared by the model definitions: initialization and global average.

Both match torchvision, so that a state_dict or a seed gives the same model in both.
"""

import torch
from torch import nn


def initialize(module: nn.Module, linear_std: float | None = None) -> None:
    """Kaiming-normal convolutions (fan out), unit batch norms; linears with PyTorch's defaults.

    With `linear_std` linear layers are drawn from a normal distribution instead, with zero biases.
    """
    for child in module.modules():
        if isinstance(child, nn.Conv2d):
            nn.init.kaiming_normal_(child.weight, mode="fan_out", nonlinearity="relu")
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.BatchNorm2d):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)
        elif isinstance(child, nn.Linear) and linear_std is not None:
            nn.init.normal_(child.weight, 0.0, linear_std)
            nn.init.zeros_(child.bias)


def global_average(x: torch.Tensor) -> torch.Tensor:
    """Average each channel over its picture: [N, C, H, W] -> [N, C]."""
    return torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1)
