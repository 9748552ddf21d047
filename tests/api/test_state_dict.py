"""Tuned weights as a state_dict, which the original module loads unchanged."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pockengine
from pockengine.backends.session import to_numpy
from pockengine.tests.frontends.torch.checks import check_state


class Norms(nn.Module):
    """A batch norm applied to two inputs, one in evaluation mode, and an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.fixed = nn.BatchNorm1d(8).eval().requires_grad_(False)
        self.head, self.unused = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.head(self.fixed(self.stem(one)) + self.stem(other))


class Tied(nn.Module):
    """An embedding tied to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(words).mean(1))


class Versioned(Norms):
    """A module that reads the version of its loaded state."""

    _version = 2

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        assert local_metadata["version"] == 2
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def vectors() -> dict[str, torch.Tensor]:
    return {"one": torch.randn(5, 6), "other": torch.randn(5, 6)}


@pytest.mark.parametrize("kind", [Norms, Tied, Versioned])
def test_state_dict_is_complete_and_loads_strictly(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    words = torch.randint(9, (5, 3))
    inputs = {"words": words} if kind is Tied else vectors()
    target = torch.randint(3, (5,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = pockengine.compile(model, inputs, loss="cross_entropy")
    twin = kind()
    twin.load_state_dict(model.state_dict())
    twin.requires_grad_(True)
    if kind is not Tied:
        twin.fixed.requires_grad_(False)
    optimizer = torch.optim.SGD(twin.parameters(), 0.1)
    arrays = {name: value.numpy() for name, value in inputs.items()}
    with compiled.session() as session:
        for _ in range(3):
            session.train_step({**arrays, "target": target.numpy()}, lr=0.1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(twin(**inputs), target).backward()
            optimizer.step()
        state = compiled.state_dict(session)

    assert list(state) == list(model.state_dict())
    check_state(state, twin.state_dict())
    fresh = kind()
    fresh.load_state_dict(state)
    check_state(fresh.state_dict(), twin.state_dict())


class Cast(nn.Module):
    """A typical 16-bit module: casts to its own dtype, norms in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 8), nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight
        self.inner, self.dtype = nn.Linear(8, 8), dtype
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))
        self.to(dtype)

    def forward(self, words: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.inner(self.words(words) + bias.to(self.dtype)).relu() + self.words(words)
        x = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(self.dtype)
        return self.head((x * self.scale).mean(1)).float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_module_trains_in_f32_and_is_exported(dtype: torch.dtype) -> None:
    """Losses and weights agree with PyTorch's within the precision of 16 bits."""
    torch.manual_seed(0)
    module, eps = Cast(dtype), torch.finfo(dtype).eps
    words, bias, y = torch.randint(9, (6, 5)), torch.randn(8).to(dtype), torch.randint(9, (6,))
    with pytest.warns(UserWarning, match=f"float32: its parameters of {str(dtype)[6:]} are"):
        compiled = pockengine.compile(module, (words, bias), loss="cross_entropy", check=True)
    with compiled.session() as session:
        batch = {"words": words, "bias": bias, "target": y}
        found = [float(session.train_step(batch, lr=0.1)["loss"]) for _ in range(3)]
        state = compiled.state_dict(session)

    started = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for loss in found:
        optimizer.zero_grad()
        expected = nn.functional.cross_entropy(module(words, bias), y)
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(float(expected), rel=8 * eps)
    for name, tensor in module.state_dict().items():
        assert state[name].dtype is dtype
        torch.testing.assert_close(state[name], tensor, rtol=4 * eps, atol=2 * eps)
    assert not torch.equal(state["inner.weight"], started["inner.weight"])
    module.load_state_dict(state)


def test_sparse_tensors_are_read_as_dense() -> None:
    np.testing.assert_array_equal(to_numpy("x", torch.eye(2).to_sparse()), np.eye(2))
