"""MobileNetV3-small with torchvision's structure and parameter names; any resolution.

A state_dict of torchvision's `mobilenet_v3_small` loads unchanged. Dropout is omitted.
"""

from collections.abc import Callable

import torch
from torch import nn

from pockengine.models.layers import global_average, initialize
from pockengine.models.specs import round_channels

# kernel, expanded channels, channels, squeeze-excitation, h-swish, stride (arXiv 1905.02244)
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


def conv_bn(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = None,
) -> nn.Sequential:
    """Convolution with padding that keeps the resolution (before the stride), batch norm,
    activation.
    """
    pad = (kernel - 1) // 2
    conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False)
    layers = [conv, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


class SqueezeExcitation(nn.Module):
    """Scale each channel by a small net's output for the means of all channels."""

    def __init__(self, channels: int) -> None:
        """Squeeze to a quarter of the channels."""
        super().__init__()
        squeezed = round_channels(channels // 4)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same shape."""
        scale = nn.functional.adaptive_avg_pool2d(x, 1)
        scale = self.fc2(nn.functional.relu(self.fc1(scale)))
        return x * nn.functional.hardsigmoid(scale)


class InvertedResidual(nn.Module):
    """Expand by a 1x1, filter depthwise, excite, project by a linear 1x1; skip if shapes agree."""

    def __init__(
        self,
        inputs: int,
        kernel: int,
        hidden: int,
        outputs: int,
        excite: bool,
        swish: bool,
        stride: int,
    ) -> None:
        """Take channel counts; the first 1x1 is omitted if it would not widen."""
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        act: type[nn.Module] = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(conv_bn(inputs, hidden, 1, act=act))
        layers.append(conv_bn(hidden, hidden, kernel, stride=stride, groups=hidden, act=act))
        if excite:
            layers.append(SqueezeExcitation(hidden))
        layers.append(conv_bn(hidden, outputs, 1))
        self.block = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y = self.block(x)
        return x + y if self.residual else y


class MobileNetV3Small(nn.Module):
    """MobileNetV3-small (2.5 M parameters at 1000 classes)."""

    def __init__(self, classes: int = 1000) -> None:
        """Build and initialize as torchvision does."""
        super().__init__()
        channels = 16
        features: list[nn.Module] = [conv_bn(3, channels, 3, 2, act=nn.Hardswish)]
        for kernel, hidden, outputs, excite, swish, stride in BLOCKS:
            block = InvertedResidual(
                channels, kernel, hidden, outputs=outputs, excite=excite, swish=swish, stride=stride
            )
            features.append(block)
            channels = outputs
        features.append(conv_bn(channels, 576, 1, act=nn.Hardswish))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Linear(576, 1024),
            nn.Hardswish(),
            nn.Identity(),  # torchvision's dropout: the last layer keeps its name
            nn.Linear(1024, classes),
        )
        initialize(self, linear_std=0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, H, W] to logits [N, classes]."""
        return self.classifier(global_average(self.features(x)))
