"""Benchmark models by name: `family[-width]-resolution`, for example `mobilenet_v2-0.35-96`.

Parsing and listing need no torch; `ModelName.build` imports it. Models are built without dropout,
so that a training step is the same step in every engine that is compared.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pockengine.errors import ImportModelError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelName:
    """A model of the registry with its sizes; str() gives the name back."""

    family: str
    width: float | None
    resolution: int

    def __str__(self) -> str:
        """Return the canonical name."""
        width = "" if self.width is None else f"-{self.width:g}"
        return f"{self.family}{width}-{self.resolution}"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one picture."""
        return (FAMILIES[self.family].channels, self.resolution, self.resolution)

    @property
    def classes(self) -> int:
        """How many classes the family has unless `build` is told otherwise."""
        return FAMILIES[self.family].classes

    def build(self, classes: int | None = None) -> "nn.Module":
        """Build the module with PyTorch's current random state; [N, C, H, W] to logits."""
        classes = self.classes if classes is None else classes
        return FAMILIES[self.family].build(self.width, classes)


@dataclass(frozen=True)
class Family:
    """How one family of names is built and which sizes it takes."""

    build: Callable[[float | None, int], "nn.Module"]
    has_width: bool = False
    channels: int = 3
    classes: int = 1000
    smallest: int = 32


def _mobilenet_v2(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.mobilenet_v2 import MobileNetV2

    return MobileNetV2(1.0 if width is None else width, classes)


def _mcunet(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.mcunet import MCUNET_5FPS, MCUNet

    return MCUNet(MCUNET_5FPS, classes)


def _resnet18(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.resnet import resnet18

    return resnet18(classes)


def _resnet50(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.resnet import resnet50

    return resnet50(classes)


def _resnet20(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.resnet import CifarResNet

    return CifarResNet(20, classes)


def _cnn(width: float | None, classes: int) -> "nn.Module":
    from pockengine.models.cnn import SmallCNN

    return SmallCNN(classes=classes)


FAMILIES = {
    "cnn": Family(_cnn, channels=1, classes=10, smallest=4),
    "mcunet": Family(_mcunet),
    "mobilenet_v2": Family(_mobilenet_v2, has_width=True),
    "resnet18": Family(_resnet18),
    "resnet20": Family(_resnet20, classes=10, smallest=4),
    "resnet50": Family(_resnet50),
}


def parse_model(name: str) -> ModelName:
    """Read a model's name.

    Raises ImportModelError naming the part that is wrong and what would be right.
    """
    family, *sizes = name.split("-")
    known = FAMILIES.get(family)
    if known is None:
        raise ImportModelError(
            f"unknown model {family!r} in {name!r}; known: {', '.join(FAMILIES)}"
        )
    form = f"{family}-width-resolution" if known.has_width else f"{family}-resolution"
    if len(sizes) != 1 + known.has_width:
        example = f"{family}-0.35-96" if known.has_width else f"{family}-64"
        raise ImportModelError(f"model {name!r} must read {form}, for example {example}")
    width = _width(name, sizes[0]) if known.has_width else None
    if not re.fullmatch(r"[1-9][0-9]{0,4}", sizes[-1]):
        raise ImportModelError(
            f"resolution {sizes[-1]!r} in {name!r} is not a positive whole number"
        )
    resolution = int(sizes[-1])
    if resolution < known.smallest:
        raise ImportModelError(f"{name!r}: the smallest resolution of {family} is {known.smallest}")
    return ModelName(family, width, resolution)


def _width(name: str, text: str) -> float:
    """Read a width multiplier such as 1, 1.0 or 0.35."""
    if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,4})?", text) or not 0 < float(text) <= 10:
        raise ImportModelError(f"width {text!r} in {name!r} is not a number between 0 and 10")
    return float(text)
