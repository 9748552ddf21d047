"""The two common models in PyTorch."""

import torch
from torch import nn
from torch.nn import functional

from pockengine.compiler.ir import Graph
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.zoo import common
from pockengine.tests.zoo.common_measure import report


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, (kh, kw, i, o) in common.CONVOLUTIONS.items():
            setattr(self, name, nn.Conv2d(i, o, (kh, kw), padding=(kh // 2, kw // 2), bias=False))
            setattr(self, f"{name}_norm", nn.BatchNorm2d(o, eps=common.EPSILON))
        self.head = nn.Linear(12, common.CLASSES)

    def block(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return getattr(self, f"{name}_norm")(getattr(self, name)(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.block("stem", x))
        y = functional.relu(self.block("a1", x))
        x = functional.relu(x + self.block("a2", y))
        x = functional.max_pool2d(x, 2)
        y = functional.relu(self.block("b1", x))
        x = functional.relu(self.block("skip", x) + self.block("b2", y))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(common.WORDS, common.WIDTH)
        self.positions = nn.Parameter(torch.zeros(common.LENGTH, common.WIDTH))
        for name, sizes in common.LINEAR.items():
            setattr(self, name, nn.Linear(*sizes))
        for name in common.NORMS:
            setattr(self, name, nn.LayerNorm(common.WIDTH, eps=common.EPSILON))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(common.BATCH, common.LENGTH, common.HEADS, -1).transpose(1, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) + self.positions
        y = self.before_attention(x)
        parts = (self.heads(layer(y)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2)
        x = x + self.out(mixed.reshape(common.BATCH, common.LENGTH, common.WIDTH))
        y = functional.gelu(self.wide(self.before_mlp(x)), approximate="tanh")
        x = x + self.narrow(y)
        return self.head(self.before_head(x).mean(1))


def state(model: str) -> dict[str, torch.Tensor]:
    """Return the weights with PyTorch's names and layouts."""
    found = {}
    norms = {"scale": "weight", "shift": "bias"}
    for name, array in common.weights(model).items():
        layer, _, kind = name.partition(".")
        if kind in norms:
            suffix = "_norm" if model == "resnet" else ""
            found[f"{layer}{suffix}.{norms[kind]}"] = array
        elif kind == "kernel":
            order = (3, 2, 0, 1) if array.ndim == 4 else (1, 0)
            found[f"{layer}.weight"] = array.transpose(order)
        else:
            found[f"{layer}.weight" if name == "embedding" else name] = array
    return {name: torch.tensor(array) for name, array in found.items()}


def module(model: str) -> nn.Module:
    """Return a model in training mode, with the weights."""
    net = ResNet() if model == "resnet" else Transformer()
    missing, unknown = net.load_state_dict(state(model), strict=False)
    assert not unknown
    assert all("running" in name or "num_batches" in name for name in missing)
    return net


def resnet() -> Graph:
    """Import the residual net."""
    x = torch.tensor(common.example("resnet").transpose(0, 3, 1, 2))
    return from_torch(module("resnet"), (x,), loss="cross_entropy")


def transformer() -> Graph:
    """Import the transformer."""
    words = torch.tensor(common.example("transformer"))
    return from_torch(module("transformer"), (words,), loss="cross_entropy")


if __name__ == "__main__":
    report({"resnet": resnet, "transformer": transformer})
