"""Ten SGD steps by the whole compiler and our oracle, compared with PyTorch."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.frontends.torch.model import from_torch
from pockengine.models.cnn import SmallCNN
from pockengine.models.mcunet import MCUNet
from pockengine.models.mobilenet_v2 import InvertedResidual
from pockengine.models.resnet import BasicBlock, Bottleneck, CifarResNet
from pockengine.models.specs import NetSpec
from pockengine.tests.frontends.torch.checks import batches_of, check_training, relative_error


class Classifier(nn.Module):
    """A stem, a block under test, a linear head."""

    def __init__(self, block: nn.Module, channels: int, outputs: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.block = block
        self.head = nn.Linear(outputs, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


def hard_swish_net() -> nn.Module:
    """Grouped and strided convolutions, pools and h-swish in one."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2, padding=2),
        nn.Hardswish(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 12, 3, padding="same", groups=4, bias=False),
        nn.BatchNorm2d(12),
        nn.Hardsigmoid(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12 * 2 * 2, 16),
        nn.Tanh(),
        nn.Linear(16, 5),
    )


NETS = {
    "small CNN": lambda: SmallCNN(inputs=3, width=8, classes=5),
    "basic block": lambda: Classifier(BasicBlock(8, 8, 1, None), 8, 8),
    "bottleneck": lambda: Classifier(Bottleneck(16, 4, 1, None), 16, 16),
    "inverted residual": lambda: Classifier(InvertedResidual(8, 8, 1, 3), 8, 8),
    "MCUNet blocks": lambda: MCUNet(NetSpec(8, ((3, 1, 8, 1), (5, 3, 8, 1), (7, 2, 16, 2))), 5),
    "pools and h-swish": hard_swish_net,
    "CIFAR ResNet-8": lambda: CifarResNet(8, 5),
}


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", NETS)
def test_ten_steps_follow_pytorch(name: str, mode: str) -> None:
    torch.manual_seed(1)
    model = NETS[name]().train(mode == "train")

    check_training(model, batches_of((6, 3, 16, 16), 5), lr=0.02)


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 0.0), (0.0, 0.01), (0.9, 0.01)])
def test_momentum_and_weight_decay_follow_pytorch(momentum: float, weight_decay: float) -> None:
    torch.manual_seed(1)

    check_training(
        SmallCNN(inputs=3, width=8, classes=5),
        batches_of((6, 3, 8, 8), 5),
        lr=0.02,
        momentum=momentum,
        weight_decay=weight_decay,
    )


def test_mean_squared_error_follows_pytorch() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(4, 6), torch.randn(4, 3)) for _ in range(10)]

    check_training(model, batches, loss="mse")


def test_frozen_parameters_do_not_change() -> None:
    torch.manual_seed(1)
    model = SmallCNN(inputs=3, width=8, classes=5)
    model.stem.requires_grad_(False)
    model.block1.requires_grad_(False)

    check_training(model, batches_of((6, 3, 8, 8), 5))


class Stopped(nn.Module):
    """A gate without a gradient, by detach and by no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.first(x))
        with torch.no_grad():
            scale = 1 / (1 + self.second(y).square().mean(1, keepdim=True))
        return self.second(y * y.detach()) * scale


class Padded(nn.Module):
    """The mean of a sentence's word embeddings; word 2 is padding: read, but never trained."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6, padding_idx=2)
        self.head = nn.Linear(6, 3)
        nn.init.normal_(self.words.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(x).mean(1))


@pytest.mark.parametrize("kind", [Stopped, Padded])
def test_stopped_gradients_follow_pytorch(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    x = [torch.randn(4, 6) if kind is Stopped else torch.randint(7, (4, 5)) for _ in range(10)]

    check_training(kind(), [(each, torch.randint(3, (4,))) for each in x])


def test_gradients_that_meet_at_a_skip_are_summed() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(5, 5)
            self.second = nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(self.first(x))
            return (y + self.second(y) * y).square().mean()

    model, x = Skip(), torch.randn(3, 5)
    model(x).backward()
    graph = from_torch(model, (x,))
    g = Builder(graph)
    weight = graph.params["first.weight"].value
    g.output("gradient", backward(g, graph.outputs["loss"], {weight: None})[weight])

    found = run(graph, {"x": x.numpy()})["gradient"].T
    assert relative_error(found, model.first.weight.grad) < 1e-5
    assert np.allclose(found, finite_differences(model, x), atol=2e-3)


def finite_differences(model: nn.Module, x: torch.Tensor) -> np.ndarray:
    """Return central differences of the loss in first.weight, in double precision."""
    model, x, step = copy.deepcopy(model).double(), x.double(), 1e-5
    weight = model.first.weight
    found = np.zeros(weight.shape)
    with torch.no_grad():
        for index in np.ndindex(*weight.shape):
            before = float(weight[index])
            losses = []
            for value in (before + step, before - step):
                weight[index] = value
                losses.append(float(model(x)))
            weight[index] = before
            found[index] = (losses[0] - losses[1]) / (2 * step)
    return found


LAYERS = {
    "1D": (nn.Conv1d(6, 6, 3), 1),
    "1D, depthwise": (nn.Conv1d(6, 6, 3, groups=6), 2),
    "1D, pointwise": (nn.Conv1d(6, 6, 1), 1),
    "2D, two inputs to an output": (nn.Conv2d(12, 6, 3, groups=6), 3),
    "3D": (nn.Conv3d(6, 4, (2, 3, 1), stride=2), 3),
    "3D, depthwise": (nn.Conv3d(6, 6, (3, 2, 2), groups=6), 4),
    "3D, flat": (nn.Conv3d(6, 4, (1, 3, 3)), 3),
}
"""Convolutions, and the axis of the channels of their weights."""


@pytest.mark.parametrize("name", LAYERS)
def test_channels_of_convolutions_have_their_part_of_the_gradient(name: str) -> None:
    layer, axis = LAYERS[name]
    torch.manual_seed(0)
    x = torch.randn(2, layer.in_channels, *[5] * len(layer.kernel_size))
    found = {}
    for channels in (None, (1, 4), range(2, 4)):
        graph = from_torch(layer, (x,))
        weight, output = graph.params["weight"], graph.outputs["output"]
        assert channel_axis("some", graph, weight) == axis
        g = Builder(graph)
        loss = g.reduce_sum(g.square(output), axes=tuple(range(len(output.shape))))
        wrt = {weight.value: channels, graph.inputs[0]: None}  # whose gradient reads the weight
        graph.outputs["gradient"] = backward(g, loss, wrt)[weight.value]
        found[channels] = run(graph, {graph.inputs[0].name: x.numpy()})["gradient"]

    assert found[None].shape[axis] == 6
    for channels in ((1, 4), range(2, 4)):
        whole = found[None].take(tuple(channels), axis)
        np.testing.assert_allclose(found[channels], whole, rtol=1e-6)


def test_one_input_channel_of_volumes_is_no_tap_of_their_depth() -> None:
    graph = from_torch(nn.Conv3d(1, 4, 3, bias=False), (torch.randn(2, 1, 5, 5, 5),))
    (param,) = graph.params.values()
    assert param.value.shape[channel_axis("some", graph, param)] == 1
