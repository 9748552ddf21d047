"""The benchmark models, once for every reference framework: layers by PyTorch's parameter names.

A framework provides `Layers`, its form of each layer, and gets every net of models/ that it has
layers for. Pictures are in the framework's own order of dimensions; PyTorch's padding is symmetric.
"""

from collections.abc import Callable
from typing import Any, Protocol

from pockengine.errors import FarmError
from pockengine.models.registry import ModelName
from pockengine.models.specs import (
    MCUNET_5FPS,
    MOBILENET_V2_STAGES,
    RESNET50_DEPTHS,
    round_channels,
)

Tensor = Any  # of whichever framework

BATCH_NORM_EPS = 1e-5


class Layers(Protocol):
    """The layers of a convolutional net; `name` is that of PyTorch's module."""

    def convolution(
        self, x: Tensor, name: str, filters: int, kernel: int, stride: int = 1
    ) -> Tensor:
        """Convolve without a bias, with padding that keeps the resolution (before the stride)."""
        ...

    def depthwise(self, x: Tensor, name: str, kernel: int, stride: int) -> Tensor:
        """Filter each channel separately, without a bias."""
        ...

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalize each channel by the batch, and keep running statistics."""
        ...

    def linear(self, x: Tensor, name: str, outputs: int) -> Tensor:
        """Multiply by a matrix and add a bias."""
        ...

    def relu(self, x: Tensor, most: float | None = None) -> Tensor:
        """Clamp to [0, most]."""
        ...

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add two tensors of one shape."""
        ...

    def max_pool(self, x: Tensor) -> Tensor:
        """Take the largest of 3x3 by stride 2, padded by one; nothing is negative."""
        ...

    def global_average(self, x: Tensor) -> Tensor:
        """Average each channel over its picture: [N, C]."""
        ...


def convolutional_net(net: Layers, x: Tensor, model: ModelName, classes: int) -> Tensor:
    """Apply a model to pictures and return logits [N, classes].

    FarmError for a family that is not convolutional.
    """
    builder = FAMILIES.get(model.family)
    if builder is None:
        raise FarmError(f"{model.family} is no net of {', '.join(FAMILIES)}")
    return builder(net, x, model, classes)


def _mobilenet_v2(net: Layers, x: Tensor, model: ModelName, classes: int) -> Tensor:
    """Apply torchvision's MobileNetV2 without dropout."""
    width = 1.0 if model.width is None else model.width
    channels = round_channels(32 * width)
    x = _unit(net, x, ("features.0.0", "features.0.1"), filters=channels, kernel=3, stride=2)
    index = 1
    for expansion, base, count, stride in MOBILENET_V2_STAGES:
        outputs = round_channels(base * width)
        for block in range(count):
            step = stride if block == 0 else 1
            name = f"features.{index}.conv"
            names = [(f"{name}.{at}.0", f"{name}.{at}.1") for at in range(2)]
            first = 1 if expansion != 1 else 0
            names = [*names[: first + 1], (f"{name}.{first + 1}", f"{name}.{first + 2}")]
            y = _inverted_residual(net, x, names, (channels, expansion, outputs, 3, step))
            x = net.add(x, y) if step == 1 and channels == outputs else y
            channels, index = outputs, index + 1
    last = round_channels(1280 * max(1.0, width))
    x = _unit(net, x, (f"features.{index}.0", f"features.{index}.1"), filters=last, kernel=1)
    return net.linear(net.global_average(x), "classifier.1", classes)


def _mcunet(net: Layers, x: Tensor, model: ModelName, classes: int) -> Tensor:
    """Apply MCUNet-5FPS."""
    x = _unit(
        net, x, ("first_conv.conv", "first_conv.bn"), filters=MCUNET_5FPS.stem, kernel=3, stride=2
    )
    channels = MCUNET_5FPS.stem
    for index, (kernel, expansion, outputs, stride) in enumerate(MCUNET_5FPS.blocks):
        parts = ("pointwise1", "depthwise", "pointwise2")[0 if expansion != 1 else 1 :]
        names = [(f"blocks.{index}.{part}.conv", f"blocks.{index}.{part}.bn") for part in parts]
        y = _inverted_residual(net, x, names, (channels, expansion, outputs, kernel, stride))
        x = net.add(x, y) if stride == 1 and channels == outputs else y
        channels = outputs
    return net.linear(net.global_average(x), "classifier", classes)


def _resnet50(net: Layers, x: Tensor, model: ModelName, classes: int) -> Tensor:
    """Apply ResNet-50 v1.5."""
    x = net.max_pool(
        net.relu(net.batch_norm(net.convolution(x, "conv1", 64, kernel=7, stride=2), "bn1"))
    )
    for stage, depth in enumerate(RESNET50_DEPTHS):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            x = _bottleneck(
                net,
                x,
                f"layer{stage + 1}.{block}",
                planes=64 << stage,
                stride=stride,
                downsample=not block,
            )
    return net.linear(net.global_average(x), "fc", classes)


def _bottleneck(
    net: Layers, x: Tensor, name: str, planes: int, stride: int, downsample: bool
) -> Tensor:
    """Apply 1x1, 3x3 and 1x1 convolutions and the skip."""
    skip = x
    if downsample:
        skip = net.convolution(x, f"{name}.downsample.0", 4 * planes, kernel=1, stride=stride)
        skip = net.batch_norm(skip, f"{name}.downsample.1")
    y = net.relu(net.batch_norm(net.convolution(x, f"{name}.conv1", planes, 1), f"{name}.bn1"))
    y = net.convolution(y, f"{name}.conv2", planes, kernel=3, stride=stride)
    y = net.relu(net.batch_norm(y, f"{name}.bn2"))
    y = net.batch_norm(net.convolution(y, f"{name}.conv3", 4 * planes, 1), f"{name}.bn3")
    return net.relu(net.add(y, skip))


def _inverted_residual(
    net: Layers, x: Tensor, names: list[tuple[str, str]], sizes: tuple[int, int, int, int, int]
) -> Tensor:
    """Expand, filter, project; `names` are of each part's convolution and batch norm.

    `sizes` are input channels, expansion, output channels, kernel, stride.
    """
    channels, expansion, outputs, kernel, stride = sizes
    if expansion != 1:
        x = _unit(net, x, names[0], filters=channels * expansion, kernel=1)
    convolution, norm = names[-2]
    x = net.relu(net.batch_norm(net.depthwise(x, convolution, kernel, stride), norm), 6.0)
    convolution, norm = names[-1]
    return net.batch_norm(net.convolution(x, convolution, outputs, 1), norm)


def _unit(
    net: Layers, x: Tensor, names: tuple[str, str], filters: int, kernel: int, stride: int = 1
) -> Tensor:
    """Apply a convolution, its batch norm and ReLU6."""
    y = net.convolution(x, names[0], filters, kernel=kernel, stride=stride)
    return net.relu(net.batch_norm(y, names[1]), 6.0)


FAMILIES: dict[str, Callable[[Layers, Tensor, ModelName, int], Tensor]] = {
    "mcunet": _mcunet,
    "mobilenet_v2": _mobilenet_v2,
    "resnet50": _resnet50,
}
