"""Derivatives within a model or its loss: gradient penalties, physics, inner training steps."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

from pockengine.api import compile
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import check_forward, check_gradients

Applied = Callable[[nn.Module, torch.Tensor], Any]


class Applying(nn.Module):
    """A net from 4 features to 3, and a function of the net and its input."""

    def __init__(self, function: Applied, *, norm: bool = True) -> None:
        super().__init__()
        inner = nn.LayerNorm(5) if norm else nn.Softplus()
        self.net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), inner, nn.Linear(5, 3))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.net, x)


def slope(y: torch.Tensor, x: torch.Tensor, **settings: Any) -> torch.Tensor:
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True, **settings)
    return found


def penalty(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    y = net(x)
    return y.sum() + (slope(y, x).norm(dim=1) - 1).square().mean()


def detached(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the derivative with respect to `x` only, not its detached copy."""
    x = x.clone().requires_grad_()
    y = net(x * x.detach()).sin()
    return (y + slope(y, x).sum(1, keepdim=True)).sum()


def constant(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return a derivative without its own gradient, at points that forward creates."""
    points = torch.linspace(0, 1, 8).view(2, 4).requires_grad_()
    (found,) = torch.autograd.grad(net(points).sum(), points, retain_graph=True)
    assert not found.requires_grad
    return (found.mean(0) * x * net(x).sum()).sum()


def inner_step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the loss after a training step, as in MAML."""
    labels = torch.tensor([0, 2, -100, 1])
    weights = dict(net.named_parameters())
    loss = F.cross_entropy(net(x), labels)
    slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    moved = {key: w - 0.5 * dw for (key, w), dw in zip(weights.items(), slopes, strict=True)}
    return F.cross_entropy(functional_call(net, moved, (x.flip(0),)), labels)


def unused(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x, other = x.clone().requires_grad_(), torch.ones(3, requires_grad=True)
    settings = {"create_graph": True, "materialize_grads": True}
    dx, nothing = torch.autograd.grad(net(x).square().sum(), (x, other), **settings)
    return (dx.square().sum() + nothing).sum()


def batched(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    weights = torch.eye(3)[:, None].expand(3, *x.shape[:1], 3)
    settings = {"create_graph": True, "is_grads_batched": True}
    (found,) = torch.autograd.grad(net(x), x, weights, **settings)
    return found.square().sum()


def of_weights(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """`torch.func.grad` in a dictionary of weights, with an auxiliary result."""

    def loss(
        weights: dict[str, torch.Tensor], x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y = functional_call(net, weights, (x,))
        return y.square().mean(), y

    slopes, y = grad(loss, has_aux=True)(dict(net.named_parameters()), x)
    return y.sum() + sum(dw.square().sum() for dw in slopes.values())


def first(net: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda row: net(row)[0]


DERIVATIVES: dict[str, Applied] = {
    "penalty": penalty,
    "detached": detached,
    "constant": constant,
    "inner step": inner_step,
    "unused": unused,
    "batched": batched,
    "of weights": of_weights,
    "jacobian": lambda net, x: (
        torch.autograd.functional.jacobian(net, x[:2], create_graph=True).square().sum()
    ),
    "vectorized": lambda net, x: (
        torch.autograd.functional.jacobian(net, x[0], create_graph=True, vectorize=True)
        .square()
        .sum()
    ),
    "product": lambda net, x: torch.autograd.functional.jvp(net, x, x.cos(), True)[1].sin().sum(),
    "grad": lambda net, x: vmap(grad(first(net)))(x).square().sum(),
    "third": lambda net, x: (
        grad(lambda u: grad(lambda v: grad(first(net))(v)[1])(u)[0])(x[0]).sum()
    ),
    "vjp": lambda net, x: vjp(net, x)[1](x[:, :3])[0].square().sum(),
    "jvp": lambda net, x: jvp(net, (x,), (x.cos(),))[1].square().sum(),
    "jacrev": lambda net, x: jacrev(net)(x[0]).square().sum(),
    "jacfwd": lambda net, x: vmap(jacfwd(net))(x[:2]).square().sum(),
    "laplacian": lambda net, x: vmap(lambda row: hessian(first(net))(row).trace())(x[:2]).sum(),
}  # fmt: skip


THRICE = {"product", "third", "jvp", "jacfwd", "laplacian"}
"""Cases with third derivatives, in which PyTorch's layer norm is wrong."""


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_train_as_in_pytorch(name: str) -> None:
    torch.manual_seed(0)

    module = Applying(DERIVATIVES[name], norm=name not in THRICE)
    check_gradients(module, (torch.randn(4, 4),), (torch.randn(4, 4),))


def test_forces_can_be_an_output_of_the_model() -> None:
    def forces(net: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.requires_grad_()
        energy = net(x).square().sum(1)
        return energy, -slope(energy, x)

    check_forward(Applying(forces), torch.randn(4, 4))


def train(module: nn.Module, draw: Callable[[], tuple[torch.Tensor, ...]], steps: int) -> None:
    """Take steps in C and in PyTorch: losses agree within 1e-4.

    Adam is unsuitable: it takes full steps even for gradients that are 0 up to rounding.
    """
    torch.manual_seed(1)
    batches = [draw() for _ in range(steps)]
    reference = copy.deepcopy(module)
    optimizer = torch.optim.SGD(reference.parameters(), 0.01)
    compiled = compile(module, batches[0], optimizer="sgd")
    names = [value.name for value in compiled.graph.inputs]
    with compiled.session() as session:
        for batch in batches:
            optimizer.zero_grad()
            loss = reference(*batch)
            loss.backward()
            optimizer.step()
            arrays = [x.detach().numpy() for x in batch]
            found = session.train_step(dict(zip(names, arrays, strict=True)), lr=0.01)["loss"]
            np.testing.assert_allclose(found, loss.item(), rtol=1e-4)


class Burgers(nn.Module):
    """Residuals of u_t + u u_x = nu u_xx at random points; the viscosity nu is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.nu = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        x.requires_grad_()
        t.requires_grad = True
        u = self.net(torch.cat([x, t], 1))
        dx = slope(u, x)
        residual = slope(u, t) + u * dx - self.nu * slope(dx, x)
        start = self.net(torch.cat([x, torch.zeros_like(t)], 1))
        return residual.square().mean() + F.mse_loss(start, -torch.sin(3 * x.detach()))


def test_physics_in_a_loss_trains_in_c() -> None:
    torch.manual_seed(2)

    train(Burgers(), lambda: (torch.rand(6, 1), torch.rand(6, 1)), 12)


class Critic(nn.Module):
    """WGAN-GP: a critic whose gradient norm is pulled to 1 between real and fake pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, 4, 3, 2, 1), nn.GroupNorm(2, 4), nn.LeakyReLU(0.2),
            nn.MaxPool2d(2, 1), nn.AvgPool2d(2, 1), nn.Flatten(), nn.Linear(16, 1),
        )  # fmt: skip

    def forward(self, real: torch.Tensor, drawn: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        between = (share * real + (1 - share) * drawn).requires_grad_()
        steepness = slope(self.net(between), between).flatten(1).norm(2, dim=1)
        scores = self.net(drawn).mean() - self.net(real).mean()
        return scores + 10 * (steepness - 1).square().mean()


def test_gradient_penalty_trains_in_c() -> None:
    torch.manual_seed(3)
    picture = (2, 2, 8, 8)

    train(Critic(), lambda: (torch.randn(picture), torch.randn(picture), torch.rand(2, 1, 1, 1)), 3)


def retained_gradients(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    net(x).sum().backward()
    return net(x)


def dual(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with forward_ad.dual_level():
        return net(forward_ad.make_dual(x, x))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("torch.Tensor.backward", retained_gradients),
        ("torch.autograd.forward_ad.dual_level", dual),
    ],
)
def test_unsupported_derivatives_are_refused_by_name(name: str, function: Applied) -> None:
    with pytest.raises(ImportModelError, match=rf"^{name}.* \(at .*test_torch_der.*\.py:\d+\)"):
        from_torch(Applying(function), (torch.randn(4, 4),))
