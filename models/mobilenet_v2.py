"""MobileNetV2 with torchvision's structure, parameter names and initialization.

Supports any width multiplier, resolution (the net is fully convolutional) and class count. A
state_dict of torchvision's `mobilenet_v2` loads unchanged.
"""

from collections import OrderedDict

import torch
from torch import nn

from pockengine.models.layers import global_average, initialize
from pockengine.models.specs import MOBILENET_V2_STAGES, round_channels


def conv_bn_relu6(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution with padding that keeps the resolution (before the stride), batch norm, ReLU6."""
    pad = (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Expand by a 1x1, filter by a depthwise 3x3, project by a linear 1x1; skip if it fits."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        """Take channel counts; an `expansion` of 1 omits the first 1x1."""
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        layers: list[nn.Module] = []
        if expansion != 1:
            layers.append(conv_bn_relu6(inputs, hidden, kernel=1))
        layers.append(conv_bn_relu6(hidden, hidden, stride=stride, groups=hidden))
        layers.append(nn.Conv2d(hidden, outputs, 1, bias=False))
        layers.append(nn.BatchNorm2d(outputs))
        self.conv = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y = self.conv(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """MobileNetV2; the default `dropout` is 0 (torchvision's is 0.2)."""

    def __init__(self, width: float = 1.0, classes: int = 1000, dropout: float = 0.0) -> None:
        """Scale every channel count by `width`, rounded to multiples of 8."""
        super().__init__()
        channels = round_channels(32 * width)
        features: list[nn.Module] = [conv_bn_relu6(3, channels, stride=2)]
        for expansion, base, count, stride in MOBILENET_V2_STAGES:
            outputs = round_channels(base * width)
            for index in range(count):
                step = stride if index == 0 else 1
                features.append(InvertedResidual(channels, outputs, step, expansion))
                channels = outputs
        last = round_channels(1280 * max(1.0, width))
        features.append(conv_bn_relu6(channels, last, kernel=1))
        self.features = nn.Sequential(*features)
        # torchvision's name is classifier.1 with or without a preceding dropout.
        head: list[tuple[str, nn.Module]] = [("1", nn.Linear(last, classes))]
        if dropout > 0:
            head.insert(0, ("0", nn.Dropout(dropout)))
        self.classifier = nn.Sequential(OrderedDict(head))
        initialize(self, linear_std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, H, W] to logits [N, classes]."""
        return self.classifier(global_average(self.features(x)))
