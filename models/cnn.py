"""A small residual CNN for small pictures: for the digits example and fast tests."""

import torch
from torch import nn

from pockengine.models.layers import global_average, initialize


def conv_bn(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """3x3 convolution with padding that keeps the resolution (before the stride), batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
    )


class Residual(nn.Module):
    """relu(x + bn(conv(relu(bn(conv(x))))))."""

    def __init__(self, channels: int) -> None:
        """Keep the shape."""
        super().__init__()
        self.conv1 = conv_bn(channels, channels)
        self.conv2 = conv_bn(channels, channels)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, channels, H, W] to the same shape."""
        return self.relu(x + self.conv2(self.relu(self.conv1(x))))


class SmallCNN(nn.Module):
    """Stem, residual block, strided convolution, another residual block, global mean, linear."""

    def __init__(self, inputs: int = 1, width: int = 16, classes: int = 10) -> None:
        """Take picture channels and those of the first half; the second half has twice as many."""
        super().__init__()
        self.stem = conv_bn(inputs, width)
        self.block1 = Residual(width)
        self.down = conv_bn(width, 2 * width, stride=2)
        self.block2 = Residual(2 * width)
        self.relu = nn.ReLU()
        self.head = nn.Linear(2 * width, classes)
        initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, inputs, H, W] to logits [N, classes]."""
        x = self.block1(self.relu(self.stem(x)))
        x = self.block2(self.relu(self.down(x)))
        return self.head(global_average(x))
