"""Benchmark models by name: `family[-width]-size`, as in `mobilenet_v2-0.35-96`, `llama-15m-256`.

The size is the resolution of square pictures, or the number of tokens. Parsing and listing need no
torch; `ModelName.build` imports it. Models have no dropout, so that every compared engine computes
the same training step.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pockengine.errors import ImportModelError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ModelName:
    """A model of the registry with its sizes; str() returns its name."""

    family: str
    width: float | None
    size: int

    def __str__(self) -> str:
        """Return the canonical name."""
        width = "" if self.width is None else f"-{self.width:g}"
        return f"{self.family}{width}-{self.size}"

    @property
    def known(self) -> "ModelFamily":
        """The registry's entry of the family, with its kind of input and its loss."""
        return FAMILIES[self.family]

    @property
    def resolution(self) -> int:
        """Height and width of the pictures; ImportModelError for a model that takes tokens."""
        if self.known.vocabulary:
            raise ImportModelError(f"{self} takes tokens; it has no resolution")
        return self.size

    @property
    def input_shape(self) -> tuple[int, ...]:
        """A picture's channels, height and width, or the number of tokens."""
        if self.known.vocabulary:
            return (self.size,)
        return (self.known.channels, self.size, self.size)

    @property
    def input_name(self) -> str:
        """Name of the only input of `forward`."""
        return "input_ids" if self.known.vocabulary else "x"

    @property
    def loss(self) -> str | None:
        """The loss to add to the logits; None if the model returns its own."""
        return None if self.known.own_loss else "cross_entropy"

    @property
    def classes(self) -> int:
        """Default number of classes of the family."""
        return self.known.classes

    def build(self, classes: int | None = None) -> "nn.Module":
        """Build the module with PyTorch's current random state.

        It maps pictures [N, C, H, W] f32 or tokens [N, L] i64 to logits [N, classes]; a model with
        its own loss to {"loss", "logits"}, and ignores `classes`.
        """
        return self.known.build(self, self.classes if classes is None else classes)

    def example_inputs(self, batch: int) -> "dict[str, torch.Tensor]":
        """Return random pictures or tokens of the right shapes and types, from seed 0."""
        import torch

        generator = torch.Generator().manual_seed(0)
        shape = (batch, *self.input_shape)
        if self.known.vocabulary:
            drawn = torch.randint(self.known.vocabulary, shape, generator=generator)
        else:
            drawn = torch.randn(shape, generator=generator)
        return {self.input_name: drawn}


@dataclass(frozen=True)
class ModelFamily:
    """A family of models: how it is built, its sizes, and whether it takes pictures or tokens.

    `vocabulary` is the number of tokens, 0 for a family that takes pictures. A size must be a
    multiple of `step`. `extra` names the packages that it needs.
    """

    build: Callable[[ModelName, int], "nn.Module"]
    has_width: bool = False
    channels: int = 3
    classes: int = 1000
    smallest: int = 32
    largest: int = 99999
    step: int = 1
    vocabulary: int = 0
    own_loss: bool = False
    extra: str = "torch"

    def form(self, name: str) -> str:
        """Return the pattern of names of the family `name`: `mobilenet_v2-WIDTH-SIZE`."""
        width = "-WIDTH" if self.has_width else ""
        return f"{name}{width}-{'TOKENS' if self.vocabulary else 'SIZE'}"


def _mobilenet_v2(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.mobilenet_v2 import MobileNetV2

    return MobileNetV2(1.0 if name.width is None else name.width, classes)


def _mobilenet_v3_small(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.mobilenet_v3 import MobileNetV3Small

    return MobileNetV3Small(classes)


def _mcunet(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.mcunet import MCUNet
    from pockengine.models.specs import MCUNET_5FPS

    return MCUNet(MCUNET_5FPS, classes)


def _resnet18(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.resnet import resnet18

    return resnet18(classes)


def _resnet50(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.resnet import resnet50

    return resnet50(classes)


def _resnet20(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.resnet import CifarResNet

    return CifarResNet(20, classes)


def _cnn(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.cnn import SmallCNN

    return SmallCNN(classes=classes)


def _vit_tiny(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.vit import VisionTransformer

    return VisionTransformer(name.size, classes)


def _bert_base(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.language import Bert

    return Bert(classes)


def _distilbert(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.language import DistilBert

    return DistilBert(classes)


def _llama_15m(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.language import Llama

    return Llama()


def _llama_260k(name: ModelName, classes: int) -> "nn.Module":
    from pockengine.models.language import SMALLEST_LLAMA, Llama

    return Llama(**SMALLEST_LLAMA)


FAMILIES = {
    "bert_base": ModelFamily(
        _bert_base, classes=2, smallest=2, largest=512, vocabulary=30522, extra="models"
    ),
    "cnn": ModelFamily(_cnn, channels=1, classes=10, smallest=4),
    "distilbert": ModelFamily(
        _distilbert, classes=2, smallest=2, largest=512, vocabulary=30522, extra="models"
    ),
    "llama-15m": ModelFamily(
        _llama_15m,
        classes=32000,
        smallest=2,
        largest=256,
        vocabulary=32000,
        own_loss=True,
        extra="models",
    ),
    "llama-260k": ModelFamily(
        _llama_260k,
        classes=512,
        smallest=2,
        largest=512,
        vocabulary=512,
        own_loss=True,
        extra="models",
    ),
    "mcunet": ModelFamily(_mcunet),
    "mobilenet_v2": ModelFamily(_mobilenet_v2, has_width=True),
    "mobilenet_v3_small": ModelFamily(_mobilenet_v3_small),
    "resnet18": ModelFamily(_resnet18),
    "resnet20": ModelFamily(_resnet20, classes=10, smallest=4),
    "resnet50": ModelFamily(_resnet50),
    "vit_tiny": ModelFamily(_vit_tiny, smallest=16, step=16, extra="models"),
}


def parse_model(name: str, others: str = "") -> ModelName:
    """Parse a listed model's name.

    Raises ImportModelError with the wrong part and the supported values: a listed name, or one of
    the `others` that the caller supports.
    """
    family = next((family for family in FAMILIES if f"{name}-".startswith(f"{family}-")), None)
    if family is None:
        part = name.split("-")[0]
        whole = "" if part == name else f" in {name!r}"
        raise ImportModelError(
            f"unknown model {part!r}{whole}; known: {', '.join(FAMILIES)}{others}"
        )
    known, sizes = FAMILIES[family], name.removeprefix(family).split("-")[1:]
    kind = "length" if known.vocabulary else "resolution"
    if len(sizes) != 1 + known.has_width:
        middle, example = ("-width", "-0.35-96") if known.has_width else ("", "-64")
        raise ImportModelError(
            f"model {name!r} must read {family}{middle}-{kind}, for example {family}{example}"
        )
    width = _width(name, sizes[0]) if known.has_width else None
    if not re.fullmatch(r"[1-9][0-9]{0,4}", sizes[-1]):
        raise ImportModelError(f"{kind} {sizes[-1]!r} in {name!r} is not a positive whole number")
    return ModelName(family, width, _checked_size(name, family, kind, int(sizes[-1])))


def _checked_size(name: str, family: str, kind: str, size: int) -> int:
    known = FAMILIES[family]
    if size < known.smallest:
        raise ImportModelError(f"{name!r}: the smallest {kind} of {family} is {known.smallest}")
    if size > known.largest:
        raise ImportModelError(f"{name!r}: the largest {kind} of {family} is {known.largest}")
    if size % known.step:
        raise ImportModelError(f"{name!r}: a {kind} of {family} is a multiple of {known.step}")
    return size


def _width(name: str, text: str) -> float:
    """Parse a width multiplier such as 1, 1.0 or 0.35."""
    if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,4})?", text) or not 0 < float(text) <= 10:
        raise ImportModelError(f"width {text!r} in {name!r} is not a number between 0 and 10")
    return float(text)
