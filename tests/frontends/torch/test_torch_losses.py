"""Losses make_loss as functions: values and gradients equal PyTorch's."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pockengine.api import compile
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch, to_state_dict
from pockengine.tests.frontends.torch.checks import check_state, relative_error
from pockengine.tests.frontends.torch.gradients import check_function

CLASSES, ROWS = 4, 6
LR = 0.1


class Net(nn.Module):
    """Four logits from five numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def labels(generator: torch.Generator) -> torch.Tensor:
    return torch.randint(CLASSES, (ROWS,), generator=generator)


def ignored_labels(generator: torch.Generator) -> torch.Tensor:
    return torch.where(labels(generator) == 1, -1, labels(generator))


def numbers(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(ROWS, CLASSES, generator=generator)


def shares(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(ROWS, CLASSES, generator=generator)


def several_labels(generator: torch.Generator) -> torch.Tensor:
    """Rows of distinct classes; entries from the first -1 on are ignored."""
    order = torch.rand(ROWS, CLASSES, generator=generator).argsort(1)
    return torch.where(torch.arange(CLASSES) == torch.arange(ROWS)[:, None] % 5, -1, order)


def probabilities(generator: torch.Generator) -> torch.Tensor:
    return F.softmax(numbers(generator), 1)


def signs(generator: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(ROWS, generator=generator) < 0.5, -1.0, 1.0)


def cosine(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cosine_embedding_loss(outputs, outputs.roll(1, 0), target, margin=0.1)


def focal(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_probability = F.log_softmax(outputs, 1).gather(1, target[:, None])
    return (-((1 - log_probability.exp()) ** 2) * log_probability).mean()


WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.1])

LOSSES: dict[str, tuple[Callable[..., Any], Callable[[torch.Generator], torch.Tensor]]] = {
    "cross entropy": (F.cross_entropy, labels),
    "cross entropy, summed": (nn.CrossEntropyLoss(reduction="sum"), labels),
    "cross entropy, smoothed": (nn.CrossEntropyLoss(label_smoothing=0.2), labels),
    "cross entropy, weighted": (nn.CrossEntropyLoss(WEIGHTS), labels),
    "cross entropy, ignoring": (nn.CrossEntropyLoss(ignore_index=-1), ignored_labels),
    "cross entropy, all at once": (
        nn.CrossEntropyLoss(WEIGHTS, ignore_index=-1, label_smoothing=0.1),
        ignored_labels,
    ),
    "cross entropy of probabilities": (nn.CrossEntropyLoss(), probabilities),
    "negative log likelihood": (lambda y, target: F.nll_loss(F.log_softmax(y, 1), target), labels),
    "BCE with logits": (F.binary_cross_entropy_with_logits, shares),
    "BCE with logits, weighted": (
        nn.BCEWithLogitsLoss(weight=WEIGHTS, pos_weight=WEIGHTS.flip(0)),
        shares,
    ),
    "BCE": (lambda y, target: F.binary_cross_entropy(torch.sigmoid(y), target), shares),
    "MSE": (F.mse_loss, numbers),
    "MSE, summed": (nn.MSELoss(reduction="sum"), numbers),
    "L1": (F.l1_loss, numbers),
    "smooth L1": (nn.SmoothL1Loss(beta=0.5), numbers),
    "Huber": (nn.HuberLoss(delta=0.7), numbers),
    "KL": (lambda y, target: F.kl_div(F.log_softmax(y, 1), target), probabilities),
    "KL, by batch": (
        lambda y, target: F.kl_div(F.log_softmax(y, 1), target, reduction="batchmean"),
        probabilities,
    ),
    "KL of logarithms": (
        lambda y, target: F.kl_div(F.log_softmax(y, 1), target.log(), log_target=True),
        probabilities,
    ),
    "cosine embedding": (cosine, signs),
    "soft margin": (F.soft_margin_loss, lambda g: numbers(g).sign()),
    "margins of classes": (F.multi_margin_loss, labels),
    "margins of several labels": (F.multilabel_margin_loss, several_labels),
    "margins of several labels, summed": (nn.MultiLabelMarginLoss(reduction="sum"), several_labels),
    "Poisson": (F.poisson_nll_loss, shares),
    "hinge embedding": (F.hinge_embedding_loss, lambda g: numbers(g).sign()),
    "handwritten focal": (focal, labels),
}


@pytest.mark.parametrize("name", LOSSES)
def test_three_steps_follow_pytorch(name: str) -> None:
    torch.manual_seed(0)
    loss, draw = LOSSES[name]
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(ROWS, 5, generator=generator), draw(generator)) for _ in range(3)]
    net = Net()
    graph = from_torch(net, batches[0], loss=loss)
    step = compile_program(graph, Training(), check=True).entries["train"].graph
    params = {key: param.data.copy() for key, param in step.params.items()}
    reference = copy.deepcopy(net)
    optimizer = torch.optim.SGD(reference.parameters(), LR)
    for x, target in batches:
        inputs = {"x": x.numpy(), graph.inputs[1].name: target.numpy()}
        found = run(step, {**inputs, "lr": np.float32(LR)}, params)["loss"]
        optimizer.zero_grad()
        expected = loss(reference(x), target)
        expected.backward()
        optimizer.step()
        assert float(found) == pytest.approx(float(expected.detach()), rel=1e-5)
    weights = {key: params[key] for key in graph.params}
    check_state(to_state_dict(graph, weights), reference.state_dict(), rtol=1e-5)


def test_loss_of_several_tensors_compiles() -> None:
    torch.manual_seed(0)
    net, x, y = Net(), torch.randn(ROWS, 5), torch.randint(CLASSES, (ROWS,))
    weight = torch.rand(ROWS)

    def loss(outputs: torch.Tensor, target: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        return (F.cross_entropy(outputs, target, reduction="none") * share).sum()

    compiled = compile(net, {"x": x, "target": y, "share": weight}, loss=loss)

    with compiled.session() as session:
        inputs = {"x": x.numpy(), "target": y.numpy(), "share": weight.numpy()}
        found = session.train_step(inputs, lr=LR)["loss"]
        logits = session.predict({"x": x.numpy()})["output"]
    assert float(found) == pytest.approx(float(loss(net(x), y, weight).detach()), rel=1e-5)
    assert logits.shape == (ROWS, CLASSES)
    assert set(compiled.graph.params) == set(net.state_dict())


LABELS = torch.tensor([[1, 1, 3], [2, 3, 1], [3, 2, 2]])

CTC: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "padded": lambda x: F.ctc_loss(
        x.log_softmax(-1), LABELS, torch.tensor([7, 5, 7]), torch.tensor([3, 2, 0])
    ),
    "in one row": lambda x: F.ctc_loss(
        x.log_softmax(-1), LABELS.flatten()[:6], (7, 5, 7), (3, 2, 1), blank=4, reduction="sum"
    ),
    "without a path": lambda x: nn.CTCLoss(zero_infinity=True, reduction="none")(
        x.log_softmax(-1), LABELS, torch.tensor([7, 2, 1]), torch.tensor([3, 3, 2])
    ),
    "not normalized": lambda x: F.ctc_loss(
        x.log_softmax(-1) - 0.1, LABELS, (7, 6, 7), (2, 2, 2), reduction="none"
    ),
    "of one sample": lambda x: F.ctc_loss(
        x[:, 0].log_softmax(-1), LABELS[0], torch.tensor(7), torch.tensor(3)
    ),
}


@pytest.mark.parametrize("name", CTC)
def test_alignment_losses_and_their_gradients_equal_pytorch(name: str) -> None:
    check_function(CTC[name], (7, 3, 5))


@pytest.mark.parametrize("var", [torch.full((3, 1), 0.7), 0.3])
def test_gaussian_losses_equal_pytorch(var: torch.Tensor | float) -> None:
    check_function(lambda x: F.gaussian_nll_loss(x, x.flip(0), var, full=True), (3, 4))
    check_function(lambda x: F.gaussian_nll_loss(x, x.flip(0), x.square(), eps=0.1), (3, 4))


def test_loss_joins_a_module_whose_forward_is_replaced() -> None:
    module, rows = nn.Linear(4, 3), torch.randn(2, 4)
    module.forward = lambda x: nn.functional.relu(nn.Linear.forward(module, x))
    graph = from_torch(module, (rows, torch.zeros(2, 3)), loss=nn.functional.mse_loss)
    found = run(graph, {"x": rows.numpy(), "target": np.zeros((2, 3), np.float32)})
    assert float(found["loss"]) == pytest.approx(module(rows).square().mean().item(), rel=1e-5)


def rejection(loss: Callable[..., Any], *inputs: torch.Tensor) -> str:
    with pytest.raises(ImportModelError) as caught:
        from_torch(Net(), inputs, loss=loss)
    return str(caught.value)


class Called(nn.Module):
    """A loss without `forward`, as timm's of Jensen-Shannon."""

    def __call__(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(outputs, target)


def test_loss_module_that_is_only_callable_is_read() -> None:
    inputs = (torch.randn(ROWS, 5), torch.randn(ROWS, CLASSES))
    graph = from_torch(Net(), inputs, loss=Called())
    assert [value.name for value in graph.inputs] == ["x", "target"]


def test_wrong_losses_are_reported() -> None:
    x, y = torch.randn(ROWS, 5), torch.randint(CLASSES, (ROWS,))

    assert "give examples of them" in rejection(F.cross_entropy, x)
    assert "rename the loss's" in rejection(lambda outputs, x: outputs.mean(), x, y)
    assert "must take the model's outputs" in rejection(lambda: x, x)
    assert "give a Python function that calls it" in rejection(torch.sum, x)
    assert "one scalar" in rejection(lambda y, target: (y, target), x, y)
    assert "must be one float32 number, not f32[6, 4]" in rejection(lambda y, target: y - y, x, y)


class Margin(nn.Module):
    """Cosines to learned class centers, times a learned temperature, as in ArcFace."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, CLASSES))
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        cosines = F.linear(F.normalize(outputs), F.normalize(self.weight))
        marked = cosines - 0.2 * F.one_hot(target, CLASSES)
        return F.cross_entropy(marked * self.temperature, target)


def _module(margin: Margin) -> Callable[..., Any]:
    return margin


def _method(margin: Margin) -> Callable[..., Any]:
    return margin.forward


def _closure(margin: Margin) -> Callable[..., Any]:
    return lambda outputs, target: margin(outputs, target) + 0.1 * outputs.square().mean()


@pytest.mark.parametrize("make_loss", [_module, _method, _closure])
def test_parameters_of_the_loss_train_and_are_exported(
    make_loss: Callable[[Margin], Callable[..., Any]],
) -> None:
    torch.manual_seed(0)
    model, margin = Net(), Margin()
    x, target = torch.randn(ROWS, 5), labels(torch.Generator().manual_seed(0))

    compiled = compile(model, (x, target), loss=make_loss(margin))
    with compiled.session() as session:
        inputs = {"x": x.numpy(), "target": target.numpy()}
        found = [float(session.train_step(inputs, lr=LR)["loss"]) for _ in range(3)]
        own, loss_own = compiled.state_dict(session), compiled.loss_state_dict(session)
        tuned = compiled.tuned(session)

    loss = make_loss(margin)
    optimizer = torch.optim.SGD([*model.parameters(), *margin.parameters()], LR)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(model(x), target)
        value.backward()
        optimizer.step()
        expected.append(float(value.detach()))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    check_state(own, model.state_dict())
    named = {name.removeprefix("margin."): tensor for name, tensor in loss_own.items()}
    check_state(named, margin.state_dict())
    assert set(own) == set(tuned) == set(model.state_dict())
    assert set(named) == set(margin.state_dict())


class Scale(nn.Module):
    """The mean square of the outputs times a learned scale: a loss without a target."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        return (outputs * self.scale).square().mean()


def test_sequential_does_not_call_the_loss_as_a_layer() -> None:
    torch.manual_seed(0)
    model, scale, x = nn.Sequential(nn.Linear(5, CLASSES), nn.Tanh()), Scale(), torch.randn(ROWS, 5)
    graph = from_torch(model, (x,), loss=scale)
    found = run(graph, {"input": x.numpy()})
    outputs = model(x)
    assert relative_error(found["output"], outputs) < 1e-5
    assert relative_error(found["loss"], scale(outputs)) < 1e-5
    assert list(graph.params) == ["0.weight", "0.bias", "loss.scale"]


def test_loss_parameter_outside_a_module_is_reported() -> None:
    scale = nn.Parameter(torch.ones(()))

    def scaled(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs * scale, target)

    with pytest.raises(
        ImportModelError, match=r"trains 'scale', .* make the loss a torch.nn.Module"
    ):
        from_torch(Net(), (torch.randn(ROWS, 5), labels(torch.Generator())), loss=scaled)
