"""The PyTorch reference compared with plain loops, and its worker process."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors, write_job
from pockengine.farm.references.torch_reference import train
from pockengine.farm.references.worker import open_worker
from pockengine.models.registry import parse_model
from pockengine.tests.farm.references.jobs import random_job, relative_error

RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Net(nn.Module):
    """A convolution, a batch norm, a depthwise convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return self.last(torch.relu(self.depthwise(y)).mean((2, 3)))


def weights_of(module: nn.Module) -> Tensors:
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def net_job(**settings: object) -> tuple[Net, JobData]:
    torch.manual_seed(0)
    net = Net()
    data = random_job(
        weights_of(net), (4, 3, 8, 8), steps=4, classes=5, learning_rate=RATE, **settings
    )
    return net, data


def plain_loop(data: JobData) -> tuple[list[float], Tensors]:
    """Train every parameter by SGD with momentum and weight decay, in plain loops."""
    net = Net()
    net.load_state_dict({k: torch.tensor(v) for k, v in data.weights.items()})
    velocities = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    losses = []
    for images, labels in zip(data.images, data.labels, strict=True):
        loss = nn.functional.cross_entropy(net(torch.tensor(images)), torch.tensor(labels))
        names, parameters = zip(*net.named_parameters(), strict=True)
        with torch.no_grad():
            for name, p, g in zip(
                names, parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                velocities[name] = MOMENTUM * velocities[name] + g + DECAY * p
                p -= RATE * velocities[name]
        losses.append(loss.item())
    return losses, weights_of(net)


def test_training_equals_a_plain_loop() -> None:
    _, data = net_job(momentum=MOMENTUM, weight_decay=DECAY)

    losses, tensors = train(Net(), data)

    expected_losses, expected = plain_loop(data)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    assert tensors.keys() == expected.keys()
    assert all(relative_error(tensors[name], expected[name]) < 1e-4 for name in expected)


def test_only_named_parameters_change() -> None:
    _, data = net_job(trainable={"norm.bias": None}, momentum=MOMENTUM, weight_decay=DECAY)

    _, tensors = train(Net(), data)

    changed = {name for name in tensors if not np.array_equal(tensors[name], data.weights[name])}
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert changed == {"norm.bias"} | statistics


@pytest.mark.parametrize(
    ("name", "axis", "channels"),
    [
        ("first.weight", 1, (0, 2)),
        ("depthwise.weight", 0, (2, 5)),
        ("last.weight", 1, (3, 8)),
    ],
)
def test_only_the_share_of_channels_changes(
    name: str, axis: int, channels: tuple[int, int]
) -> None:
    _, data = net_job(trainable={name: channels}, momentum=MOMENTUM, weight_decay=DECAY)

    _, tensors = train(Net(), data)

    moved = np.moveaxis(tensors[name] != data.weights[name], axis, 0)
    inside = np.zeros(moved.shape[0], bool)
    inside[slice(*channels)] = True
    assert moved[inside].all()
    assert not moved[~inside].any()


def test_first_step_of_a_share_matches_the_whole_weight() -> None:
    _, whole = net_job()
    _, share = net_job(trainable={"first.weight": (0, 1)})
    first = slice(0, 1)
    one_step = [JobData(d.job, d.weights, d.images[first], d.labels[first]) for d in (whole, share)]

    (_, expected), (_, found) = (train(Net(), data) for data in one_step)

    np.testing.assert_array_equal(
        found["first.weight"][:, first], expected["first.weight"][:, first]
    )


def test_frozen_batch_norm_keeps_its_statistics() -> None:
    _, data = net_job(batch_norm="frozen")

    _, tensors = train(Net(), data)

    for name in ("norm.running_mean", "norm.running_var"):
        np.testing.assert_array_equal(tensors[name], data.weights[name])


@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        ({"frist.weight": None}, "no parameter 'frist.weight'"),
        ({"first.weight": (0, 9)}, r"3 channels; \[0, 9\]"),
        ({"first.weight": (2, 2)}, r"\[2, 2\]"),
    ],
)
def test_invalid_trainable_sets_are_refused(trainable: dict[str, object], message: str) -> None:
    _, data = net_job(trainable=trainable)

    with pytest.raises(FarmError, match=message):
        train(Net(), data)


def test_foreign_weights_are_refused() -> None:
    _, data = net_job()

    with pytest.raises(FarmError, match=r'do not fit the model(.|\n)*"first\.bias"'):
        train(nn.Conv2d(3, 3, 3), data)


@pytest.mark.parametrize("engine", ["torch-eager", "torch-eager-cl-malloc"])
def test_worker_matches_the_loop(engine: str, tmp_path: Path) -> None:
    module = parse_model("resnet20-16").build()
    data = random_job(
        weights_of(module), (4, 3, 16, 16), 3, model="resnet20-16", batch_norm="frozen"
    )
    losses, tensors = train(parse_model("resnet20-16").build(), data)
    write_job(tmp_path, data)

    with open_worker(engine, tmp_path, threads=1) as worker:
        training = worker.train()
        logits = worker.predict()
        times = worker.step(2)

    assert worker.version == torch.__version__
    assert training.losses == pytest.approx(losses, rel=1e-4)
    assert all(relative_error(training.tensors[name], tensors[name]) < 1e-3 for name in tensors)
    assert logits.shape == (4, 10)
    assert min(times) > 0
