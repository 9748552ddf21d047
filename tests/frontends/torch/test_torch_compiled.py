"""Whole models in generated C, compared with PyTorch.

A freshly initialized deep net that normalizes over a small batch is chaotic: one ReLU that rounds
to the other side is enough, and after a few steps PyTorch in f32 and in f64 differ by a percent.
Deep nets therefore start with open gates, and each step starts from PyTorch's weights. //farm:bench
runs ten steps without such resets, from weights that were trained on real pictures.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from pockengine.api import compile
from pockengine.models.registry import parse_model
from pockengine.tests.frontends.torch.checks import batches_of, relative_error
from pockengine.tests.frontends.torch.compiled import (
    Batch,
    Batches,
    check_steps,
    compare_steps,
    open_gates,
)
from pockengine.tests.frontends.torch.nets import AudioClassifier, SmallUNet, TextClassifier

CLASSES = 10


def build(name: str, batch: int) -> tuple[nn.Module, Batches]:
    """Build a registered model in train mode, and ten batches for it."""
    torch.manual_seed(0)
    model = parse_model(name)
    return model.build(CLASSES).train(), batches_of((batch, *model.input_shape), CLASSES)


def take_statistics(model: nn.Module, x: torch.Tensor) -> None:
    """Set the running statistics to those of one batch and freeze them."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model(x)
    for norm in norms:
        norm.momentum = 0.1
    model.eval()


def test_prediction_and_steps_follow_pytorch() -> None:
    """A prediction uses the running statistics."""
    model, batches = build("mobilenet_v2-0.35-96", 4)
    open_gates(model)
    x = batches[0][0]
    compiled = compile(model, (x,), loss="cross_entropy")

    compare_steps(compiled, model, batches, lr=1e-4, resume=True)
    with compiled.session(threads=2) as session:
        logits = session.predict({"x": x.numpy()})["output"]

    assert relative_error(logits, copy.deepcopy(model).eval()(x)) <= 1e-5


@pytest.mark.parametrize(
    ("name", "steps"),
    [("resnet18-32", 2), ("mcunet-64", 10), ("resnet20-32", 10)],
)
def test_each_step_follows_pytorch(name: str, steps: int) -> None:
    model, batches = build(name, 4)
    open_gates(model)

    check_steps(model, batches[:steps], lr=1e-4, resume=True)


def test_convolution_that_reads_padding_alone_follows_pytorch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 1, stride=3, padding=1), nn.Flatten(), nn.Linear(24, 5)
    )

    check_steps(model, batches_of((2, 3, 2, 2), 5)[:2], lr=0.1, resume=False)


def test_steps_with_frozen_statistics_follow_pytorch() -> None:
    model, batches = build("resnet20-32", 2)
    take_statistics(model, batches[0][0])

    check_steps(model, batches[:3], lr=1e-5, resume=True)


def text_batch(generator: torch.Generator) -> Batch:
    return (
        torch.randint(50, (3, 12), generator=generator),
        torch.randint(5, (3,), generator=generator),
    )


def audio_batch(generator: torch.Generator) -> Batch:
    return (
        torch.randn(4, 4, 40, generator=generator),
        torch.randint(5, (4,), generator=generator),
    )


def picture_batch(generator: torch.Generator) -> Batch:
    return (
        torch.randn(2, 3, 16, 16, generator=generator),
        torch.randint(5, (2, 16, 16), generator=generator),
    )


@pytest.mark.parametrize(
    ("build_net", "batch"),
    [(TextClassifier, text_batch), (AudioClassifier, audio_batch), (SmallUNet, picture_batch)],
)
def test_ten_free_steps_of_other_families_follow_pytorch(
    build_net: Callable[[], nn.Module], batch: Callable[[torch.Generator], Batch]
) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)

    check_steps(build_net(), [batch(generator) for _ in range(10)], lr=0.05, resume=False)


def test_ten_free_steps_of_a_small_net_follow_pytorch() -> None:
    model, batches = build("cnn-8", 16)

    check_steps(model, batches, lr=0.05, resume=False)
