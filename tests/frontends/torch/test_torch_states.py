"""Buffers that a module writes in training, compared with PyTorch per step and in evaluation."""

import copy
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn import functional, utils
from torch.nn.utils import parametrizations

from pockengine.api import compile
from pockengine.compiled import Compiled
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import check_state
from pockengine.tests.frontends.torch.compiled import compare_steps

LABELS = torch.tensor([0, 1, 2])

PICTURES = (3, 2, 6, 6)


class Averaged(nn.Module):
    """Updates a moving average and a count, in place and by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("spread", torch.ones(2, 5))
        self.register_buffer("last", torch.zeros(5))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
                self.spread[0] = y.var(0)
                self.count += 1
            self.spread.copy_(0.5 * self.spread + 0.25)
            self.last = y.detach().sum(0)
        return (y - self.mean) / self.spread.sum(0)


class Quantized(nn.Module):
    """Picks the nearest codebook vector, which moves towards its inputs (VQ-VAE)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 3), nn.Linear(3, 5)
        self.register_buffer("book", torch.randn(6, 3))
        self.register_buffer("size", torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        picked = torch.cdist(y.detach(), self.book).argmin(1)
        hot = nn.functional.one_hot(picked, 6).float()
        code = hot @ self.book
        if self.training:
            self.size.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            moved = 0.9 * self.book * self.size[:, None] + 0.1 * hot.T @ y.detach()
            self.book.copy_(moved / self.size[:, None])
        return self.outer(y + (code - y).detach())


def pictures(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(5))


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "buffers": (Averaged, (3, 4)),
    "codebook": (Quantized, (3, 4)),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 5)), (3, 4)),
    "old spectral norm": (lambda: utils.spectral_norm(nn.Linear(4, 5)), (3, 4)),
    "spectral norm of convolution": (
        lambda: pictures(
            parametrizations.spectral_norm(nn.Conv2d(2, 3, 3), n_power_iterations=2), nn.ReLU()
        ),
        PICTURES,
    ),
    "orthogonal weights": (lambda: parametrizations.orthogonal(nn.Linear(4, 5)), (3, 4)),
    "orthogonal square weights": (
        lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 5)),
        (3, 4),
    ),
    "average of all batches": (
        lambda: pictures(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=None), nn.ReLU()),
        PICTURES,
    ),
    "average of all batches in one dimension": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=None)),
        (3, 4),
    ),
    "averages that stay": (
        lambda: pictures(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, momentum=0.0), nn.ReLU()),
        PICTURES,
    ),
    "averages that stay, of a norm of two names": (
        lambda: nn.Sequential(nn.Linear(4, 5), *[nn.BatchNorm1d(5, momentum=0.0)] * 2),
        (3, 4),
    ),
    "norm of two names": (
        lambda: nn.Sequential(nn.Linear(4, 5), *[nn.BatchNorm1d(5)] * 2),
        (3, 4),
    ),
    "instance norm": (
        lambda: pictures(
            nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
        ),
        PICTURES,
    ),
    "instance norm of signals": (
        lambda: pictures(nn.Conv1d(2, 3, 3), nn.InstanceNorm1d(3, track_running_stats=True)),
        (3, 2, 6),
    ),
}


@functools.cache
def compiled_net(
    name: str,
) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]], Compiled]:
    """Return a net, batches for it, and its program; tests change copies of the net."""
    torch.manual_seed(0)
    make, shape = NETS[name]
    net = make()
    batches = [(torch.randn(shape), LABELS) for _ in range(4)]
    with torch.no_grad():
        net.eval()(batches[0][0])  # initializes lazy layers
    net.train()
    return net, batches, compile(net, (batches[0][0],), loss="cross_entropy")


@pytest.mark.parametrize("name", NETS)
def test_each_step_and_its_buffers_equal_pytorch(name: str) -> None:
    net, batches, compiled = compiled_net(name)
    compare_steps(compiled, net, batches, lr=0.05, resume=False)


@pytest.mark.parametrize("name", NETS)
def test_evaluation_equals_eval_mode(name: str) -> None:
    net, batches, compiled = compiled_net(name)
    net = copy.deepcopy(net)
    with compiled.session(1) as session:
        for x, labels in batches:
            inputs = {compiled.graph.inputs[0].name: x.numpy(), "target": labels.numpy()}
            session.train_step(inputs, lr=0.05)
        net.load_state_dict(compiled.state_dict(session))
        found = session.predict({compiled.graph.inputs[0].name: batches[0][0].numpy()})
    with torch.no_grad():
        expected = net.eval()(batches[0][0]).numpy()
    np.testing.assert_allclose(next(iter(found.values())), expected, 1e-4, 1e-4)


def test_counts_of_an_instance_norm_equal_pytorch() -> None:
    net, batches, compiled = compiled_net("instance norm")
    net = copy.deepcopy(net)
    with compiled.session(1) as session:
        inputs = {compiled.graph.inputs[0].name: batches[0][0].numpy(), "target": LABELS.numpy()}
        session.train_step(inputs, lr=0.05)
        state = compiled.state_dict(session)
    nn.functional.cross_entropy(net(batches[0][0]), LABELS)
    assert int(state["1.num_batches_tracked"]) == int(net[1].num_batches_tracked)
    check_state({"mean": state["1.running_mean"]}, {"mean": net[1].running_mean})


class Writing(nn.Module):
    """Calls a function that writes buffers, in both modes."""

    def __init__(self, write: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.write = write
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("passing", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.write(self, self.inner(x))


def assigned(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
    if module.training:
        module.average = 0.9 * module.average + y.detach().mean(0)
    return y - module.average


def written(parameter: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return parameter.add_(1)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda m, y: y + m.average.add_(y.detach().mean(0)),
            "buffer 'average' in evaluation mode too",
        ),
        (assigned, r"self\.average\.copy_"),
        (lambda m, y: y + m.passing.add_(y.detach().mean(0)), "register_buffer"),
        (lambda m, y: y + written(m.inner.bias), "register_buffer"),
    ],
)
def test_unsupported_buffer_writes_are_refused(write: Callable[..., object], words: str) -> None:
    with pytest.raises(ImportModelError, match=words):
        from_torch(Writing(write), (torch.randn(3, 4),))


def test_a_buffer_overwritten_in_each_step_is_not_a_state() -> None:
    """Phi-3's long-context frequencies are such a buffer."""

    def scratch(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
        module.passing.copy_(y.mean(0).sigmoid())
        return (y * module.passing).sum()

    compile(Writing(scratch), (torch.randn(3, 4),), check=True)


def test_attributes_assigned_in_a_trace_are_dropped() -> None:
    def caching(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
        module.cache = getattr(module, "cache", None)
        module.cache = y.new_ones(4) if module.cache is None else module.cache
        return (y * module.cache).sum()

    module = Writing(caching)
    from_torch(module, (torch.randn(3, 4),))

    assert not hasattr(module, "cache")


def test_hooks_registered_in_the_first_call_are_registered_once() -> None:
    def hooking(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
        if not hasattr(module, "hooked"):
            module.hooked = True
            module.inner.register_forward_hook(lambda *_: calls.append(1))
        module.inner(y)
        return y.sum()

    calls: list[int] = []
    module, x = Writing(hooking), torch.randn(3, 4)
    module.inner = nn.Identity()
    from_torch(module, (x,))
    calls.clear()
    module(x)

    assert len(calls) == 1


class Switched(nn.Module):
    """Branches on buffers, as quantization observers do."""

    def __init__(self, *, counted: bool = False) -> None:
        super().__init__()
        self.inner, self.counted = nn.Linear(4, 4), counted
        self.register_buffer("on", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        if self.on[0] == 1 and self.on.item() == 1 and int(self.on) == 1:
            y = y.relu()
        if self.counted and self.training:
            self.steps.add_(1)
        return (y if self.steps == 0 else y * 2).sum()


def test_a_branch_on_an_unwritten_buffer_is_accepted() -> None:
    compile(Switched(), (torch.randn(3, 4),), check=True)

    with pytest.raises(ImportModelError, match="decides by the values in a tensor"):
        from_torch(Switched(counted=True), (torch.randn(3, 4),))


def test_quantization_aware_training_uses_the_observed_ranges() -> None:
    x, target = torch.randn(8, 3), torch.randn(8, 2)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    quantization.prepare_qat(model, inplace=True)
    with pytest.raises(ImportModelError, match=r"0\.weight_fake_quant and 3 more observe ranges"):
        from_torch(model, (x,))
    model(x)
    model.apply(quantization.disable_observer)

    with compile(model, (x,), loss="mse", check=True).session() as session:
        found = session.train_step({"input": x.numpy(), "target": target.numpy()}, lr=0.1)["loss"]

    assert found == pytest.approx(float(functional.mse_loss(model(x), target).detach()), rel=1e-5)
