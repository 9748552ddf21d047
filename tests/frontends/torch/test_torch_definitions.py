"""Operators defined by other operators: results and gradients equal PyTorch's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, arrays_of, check_forward
from pockengine.tests.frontends.torch.gradients import check_function

special = torch.special

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "erfcx": special.erfcx,
    "log ndtr": lambda x: special.log_ndtr(8 * x),
    "ndtri": lambda x: special.ndtri(x.sigmoid()),
    "zeta": lambda x: special.zeta(torch.tensor(2.5), x.abs() + 0.5),
    "mode": lambda x: (x * 2).round().mode(1)[0] * x[:, 0],
    "indices of modes": lambda x: (x * 2).round().mode(0, True)[1] * x.mean(),
    "mode of a number": lambda x: x[0, 0].mode()[0] * x,
    "masked scatter": lambda x: x.masked_scatter(x.detach() > 0, x.flatten() * 2),
    "masked scatter of rows": lambda x: x.masked_scatter(x.detach()[:1] > 0, torch.cat([x, x])),
    "angle": lambda x: x.angle() * x,
    "float power": lambda x: torch.float_power(x.abs() + 0.5, 2.5).float(),
    "softmax in float64": lambda x: x.softmax(1, dtype=torch.float64).log().float(),
    "factor of bfloat16": lambda x: x * torch.tensor(6.3**0.5, dtype=torch.bfloat16),
    "random windows": lambda x: F.fractional_max_pool2d(
        x[None], (2, 3), output_size=(3, 4), _random_samples=torch.tensor([[[0.3, 0.7]]])
    ),
    "windows of volumes": lambda x: F.fractional_max_pool3d(
        x.reshape(1, 1, 1, 5, 7).expand(1, 1, 4, 5, 7),
        (2, 2, 3),
        output_size=(2, 1, 4),
        _random_samples=torch.tensor([[[0.3, 0.7, 0.9]]]),
    ),
    "levels": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
    "levels of tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.05), torch.tensor(-2, dtype=torch.int32), -16, 15
    ),
    "levels of channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.linspace(0.1, 0.5, 7), torch.arange(7, dtype=torch.int32), 1, -4, 7
    ),
    "diagonal": lambda x: x.diagonal_scatter(x[0, :5] * 2, 1),
    "diagonal below": lambda x: x.diagonal_scatter(x[:4, 0] * 2, -1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_definitions_and_their_gradients_equal_pytorch(name: str) -> None:
    check_function(FUNCTIONS[name], (5, 7))


def test_erfcx_is_accurate_for_large_arguments() -> None:
    x = torch.tensor([-8.7, -5.03, -1.0, 0.0, 3.99, 4.01, 30.0, 1e4, 1e20, float("nan")])
    graph = from_torch(Function(special.erfcx), (x,))
    (found,) = run(graph, arrays_of(graph, (x,))).values()
    np.testing.assert_allclose(found, special.erfcx(x.double()).numpy(), 2e-6)


def test_16_bit_constants_of_a_model_are_accepted() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.tensor(6.3**0.5, dtype=torch.float16))
            self.register_buffer("table", torch.arange(7).bfloat16() / 3, persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor.to(x.dtype) + self.table

    check_forward(Scaled(), torch.randn(5, 7))


HALVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a rounded number": lambda x: x.bfloat16() * 1.0,
    "sums of rounded numbers": lambda x: x.half() + (x * x).half() / 3,
    "a chain": lambda x: (x.bfloat16().tanh() * 3).exp().to(x.dtype) * x,
    "both sizes": lambda x: x.bfloat16() * x + x.bfloat16().half().sigmoid(),
    "views and writes": lambda x: x.half().t().contiguous()[1:].clone().mul_(1.1).add_(x[0, 0]),
    "joined parts": lambda x: torch.cat([x.bfloat16()[:2], x.bfloat16() - 1]).relu().amax(1),
}


@pytest.mark.parametrize("name", HALVES)
def test_16_bit_values_are_rounded_where_pytorch_rounds(name: str) -> None:
    """Later operators then compute with equal numbers."""
    x = torch.randn(5, 7)
    function = HALVES[name]
    graph = from_torch(Function(function), (x,))

    (found,) = run(graph, arrays_of(graph, (x,))).values()

    np.testing.assert_allclose(found, function(x.clone()).float().numpy(), 2e-6)


def test_layers_in_bfloat16_train_as_in_pytorch() -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = torch.nn.Linear(7, 8), torch.nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = (part.bfloat16() for part in (x, self.first.weight, self.first.bias))
            h = F.gelu(F.linear(*parts))[None]
            h = F.scaled_dot_product_attention(h, h, h * 2)[0] + h[0]
            return self.norm(h.float()).bfloat16()

    torch.manual_seed(0)
    compile(Mixed(), (torch.randn(5, 7),), loss="mse", check=True)


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="needs a newer PyTorch"
)
def test_chunked_cross_entropy_equals_the_whole() -> None:
    from torch.nn.functional import linear_cross_entropy
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    labels = torch.tensor([3, 0, 1, 3, 2])
    options = LinearCrossEntropyOptions(batch_chunk_size=2)
    check_function(lambda x: linear_cross_entropy(x, x[:4] * 2, labels, options=options), (5, 7))
