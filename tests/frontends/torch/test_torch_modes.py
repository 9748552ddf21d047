"""Modules whose evaluation mode predictions do, and do not, derive from training."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.frontends.torch.model import from_torch


class Layer(nn.Module):
    """A linear layer, and a function of the layer and its results."""

    def __init__(self, function: Callable[["Layer", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.function = function
        self.register_buffer("mean", torch.rand(4))
        self.register_buffer("var", torch.rand(4) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, self.inner(x))


class Scaled(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2 if self.training else 1)


class OwnNorm(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = self.mean
        if self.training:
            mean = x.mean(0)
            self.mean.mul_(0.9).add_(mean.detach(), alpha=0.1)
        return super().forward(x - mean)


class BatchStatistics(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(super().forward(x), self.mean, self.var, training=True)


class Derived(Layer):
    """All that predictions derive from training."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.batch_norm(super().forward(x), self.mean, self.var, training=self.training)
        y = functional.dropout(y, 0.5, self.training)
        share = 0.5 if self.training else 0.0
        y = functional.scaled_dot_product_attention(y, y, y, dropout_p=share)
        if self.training:
            self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        y = y - self.mean.clone()
        return (y, x) if self.training else (y,)


class OwnBatchNorm(nn.BatchNorm1d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.num_batches_tracked.add_(1)
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x) if self.training else x


class DropPatches(nn.Module):
    """Passes a random half of the rows in training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.randn(len(x)).argsort()
        return x[order[: len(x) // 2]] if self.training else x


class DropPath(nn.Module):
    """Stochastic depth."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.new_empty(len(x), 1).bernoulli_(0.8).div_(0.8) if self.training else x


class AnyMode(nn.Module):
    """Random numbers in both modes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


def plain(layer: Layer, y: torch.Tensor) -> torch.Tensor:
    return y.tanh()


@pytest.mark.parametrize("kind", [Scaled, OwnNorm])
def test_another_evaluation_mode_is_named(kind: type[Layer]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(Derived(plain), Pick(), kind(plain))
    before = {name: x.clone() for name, x in net.state_dict().items()}
    with pytest.warns(UserWarning, match=f"^{kind.__name__} computes something else"):
        from_torch(net, (torch.randn(3, 4),))
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    assert net[2].training


@pytest.mark.parametrize("kind", [Noise, DropPatches, nn.RReLU])
def test_numbers_drawn_in_training_only_are_named(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), DropPath(), kind(), nn.Linear(4, 2))
    nn.init.zeros_(net[3].weight)  # the outputs of the first step do not depend on them
    with pytest.warns(UserWarning, match=f"^{kind.__name__} computes something else"):
        from_torch(net, (torch.randn(6, 4),))


def test_statistics_of_the_batch_in_both_modes_are_named() -> None:
    with pytest.warns(UserWarning, match="^BatchStatistics computes something else"):
        from_torch(BatchStatistics(plain), (torch.randn(3, 4),))


class Pick(nn.Module):
    def forward(self, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return parts[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Derived(plain),
        lambda: nn.Sequential(nn.Linear(4, 4), OwnBatchNorm(4), nn.Dropout()),
        lambda: nn.Sequential(nn.Linear(4, 4), DropPath(), nn.Dropout()),
        lambda: nn.Sequential(nn.Linear(4, 4), DropPath(), AnyMode()),
        lambda: Scaled(plain).eval(),
    ],
)
def test_what_predictions_derive_gives_no_warning(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_torch(make(), (torch.randn(3, 4),))
