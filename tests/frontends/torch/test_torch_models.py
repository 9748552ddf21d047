"""Whole models: the oracle's outputs of the imported graph equal PyTorch's."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from pockengine.models.cnn import SmallCNN
from pockengine.models.mcunet import MCUNet
from pockengine.models.mobilenet_v2 import MobileNetV2
from pockengine.models.resnet import CifarResNet, resnet18, resnet50
from pockengine.models.specs import MBV2_035, MCUNET_5FPS, PROXYLESS_03
from pockengine.tests.frontends.torch.checks import check_forward

MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "mobilenet_v2-0.35-96": (lambda: MobileNetV2(0.35, 10), 96),
    "mobilenet_v2-1-64": (lambda: MobileNetV2(1.0, 7), 64),
    "mobilenet_v2-0.5-70": (lambda: MobileNetV2(0.5, 10), 70),
    "mobilenet_v2-1.4-33": (lambda: MobileNetV2(1.4, 10), 33),
    "resnet18-64": (lambda: resnet18(10), 64),
    "resnet18-75": (lambda: resnet18(10), 75),
    "resnet50-64": (lambda: resnet50(10), 64),
    "resnet20-32": (lambda: CifarResNet(20), 32),
    "mcunet-5fps-64": (lambda: MCUNet(MCUNET_5FPS, 10), 64),
    "mbv2-w0.35-64": (lambda: MCUNet(MBV2_035, 10, norm=False), 64),
    "proxyless-w0.3-64": (lambda: MCUNet(PROXYLESS_03, 10), 64),
    "cnn-8": (lambda: SmallCNN(inputs=3), 8),
}


def randomize_statistics(model: nn.Module) -> None:
    """Randomize the statistics of batch norms, so that they are not an identity."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.normal_(module.bias, 0.0, 0.1)


@pytest.mark.parametrize("name", MODELS)
def test_model_with_frozen_statistics_equals_pytorch(name: str) -> None:
    torch.manual_seed(0)
    build, resolution = MODELS[name]
    model = build().eval()
    randomize_statistics(model)
    check_forward(model, torch.randn(2, 3, resolution, resolution))


@pytest.mark.parametrize("name", ["mobilenet_v2-0.35-96", "resnet18-64", "resnet20-32", "cnn-8"])
def test_model_with_batch_statistics_equals_pytorch(name: str) -> None:
    torch.manual_seed(0)
    build, resolution = MODELS[name]
    # Batch statistics over few elements amplify rounding: PyTorch's own error is this large.
    check_forward(build().train(), torch.randn(8, 3, resolution, resolution), tolerance=1e-4)


def test_convolutional_net_needs_one_transpose_at_its_input() -> None:
    graph = check_forward(MobileNetV2(0.35, 10).eval(), torch.randn(1, 3, 64, 64))

    assert [node.op for node in graph.nodes].count("transpose") == 1
    assert graph.nodes[0].op == "transpose"


def test_gray_pictures_need_no_transpose() -> None:
    graph = check_forward(SmallCNN().eval(), torch.randn(2, 1, 8, 8))

    assert "transpose" not in {node.op for node in graph.nodes}


class Shared(nn.Module):
    """Slices of module lists; one layer has a second name."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.chain = nn.Sequential(self.layers[0], nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:2]:
            x = layer(x).relu()
        return self.chain[1:](x)


def test_lists_of_shared_modules_may_be_sliced() -> None:
    graph = check_forward(Shared(), torch.randn(3, 4))

    assert set(graph.params) == {
        *(f"layers.{i}.{kind}" for i in range(2) for kind in ("weight", "bias")),
        *("chain.2.weight", "chain.2.bias"),
    }
