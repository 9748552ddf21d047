"""ResNet-18 and ResNet-50 as torchvision names them, and the CIFAR-10 ResNets of He et al.

The CIFAR family (ResNet-20/32/44/56) has the parameter names of akamaster/pytorch_resnet_cifar10,
whose published weights it loads: shortcuts without parameters (every second pixel, zero channels
around).
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from pockengine.errors import ImportModelError
from pockengine.models.layers import global_average, initialize
from pockengine.models.specs import RESNET50_DEPTHS


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """3x3 convolution without bias, with padding that keeps the resolution (before the stride)."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a skip connection: ResNet-18."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        """Take channel counts; `downsample` is applied to the skip if its shape does not fit."""
        super().__init__()
        self.conv1 = conv3x3(inputs, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, planes, H / stride, W / stride]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        skip = x if self.downsample is None else self.downsample(x)
        y += skip
        return self.relu(y)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a fourfold widening and a skip connection: ResNet-50."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int, downsample: nn.Module | None) -> None:
        """Take channel counts; the 3x3 has the stride (ResNet v1.5, as in torchvision)."""
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, 4 planes, H / stride, W / stride]."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        skip = x if self.downsample is None else self.downsample(x)
        y += skip
        return self.relu(y)


class ResNet(nn.Module):
    """The ImageNet ResNet: 7x7 stem, max pool, four stages."""

    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], depths: Sequence[int], classes: int
    ) -> None:
        """Take the block type and the four stages' block counts."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for index, depth in enumerate(depths):
            planes = 64 << index
            stage = _stage(block, channels, planes, depth, stride=1 if index == 0 else 2)
            setattr(self, f"layer{index + 1}", stage)
            channels = planes * block.expansion
        self.fc = nn.Linear(channels, classes)
        initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, H, W] to logits [N, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for index in range(4):
            x = getattr(self, f"layer{index + 1}")(x)
        return self.fc(global_average(x))


def _stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, planes: int, depth: int, stride: int
) -> nn.Sequential:
    """`depth` blocks, of which the first has the stride and widens."""
    outputs = planes * block.expansion
    downsample = None
    if stride != 1 or inputs != outputs:
        downsample = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )
    blocks = [block(inputs, planes, stride, downsample)]
    blocks += [block(outputs, planes, 1, None) for _ in range(depth - 1)]
    return nn.Sequential(*blocks)


def resnet18(classes: int = 1000) -> ResNet:
    """Build ResNet-18 (11.7 M parameters at 1000 classes)."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> ResNet:
    """Build ResNet-50 v1.5 (25.6 M parameters at 1000 classes)."""
    return ResNet(Bottleneck, RESNET50_DEPTHS, classes)


class CifarBlock(nn.Module):
    """Basic block; with a stride its skip takes every second pixel, and pads with zero channels."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        """Take channel counts; a stride of 2 doubles the channels."""
        super().__init__()
        self.conv1 = conv3x3(inputs, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.extra = (planes - inputs) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, planes, H / stride, W / stride]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.extra:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))
        return functional.relu(y + x)


class CifarResNet(nn.Module):
    """ResNet of 6 n + 2 layers for 32x32 pictures: three stages of 16, 32, 64 channels."""

    def __init__(self, depth: int = 20, classes: int = 10) -> None:
        """Take the layer count: 20, 32, 44, 56, ..."""
        super().__init__()
        if depth % 6 != 2 or depth < 8:
            raise ImportModelError(
                f"a CIFAR ResNet has 6 n + 2 layers (20, 32, 44, 56), not {depth}"
            )
        blocks = (depth - 2) // 6
        self.conv1 = conv3x3(3, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _cifar_stage(16, 16, blocks)
        self.layer2 = _cifar_stage(16, 32, blocks)
        self.layer3 = _cifar_stage(32, 64, blocks)
        self.linear = nn.Linear(64, classes)
        initialize(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map pictures [N, 3, 32, 32] to logits [N, classes]."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(global_average(x))


def _cifar_stage(inputs: int, planes: int, blocks: int) -> nn.Sequential:
    """A stage; if it widens, its first block does."""
    stride = 1 if inputs == planes else 2
    first = CifarBlock(inputs, planes, stride)
    return nn.Sequential(first, *[CifarBlock(planes, planes, 1) for _ in range(blocks - 1)])
