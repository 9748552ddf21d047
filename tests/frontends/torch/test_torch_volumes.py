"""Convolution, pooling and sampling of volumes, compared with PyTorch; a net in C."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, arrays_of
from pockengine.tests.frontends.torch.compiled import check_steps
from pockengine.tests.frontends.torch.gradients import check_function

VOLUME = (2, 4, 5, 6, 7)

KERNEL = torch.randn(6, 4, 3, 2, 3, generator=torch.Generator().manual_seed(0))

# Functions, applied to volumes (2, 4, 5, 6, 7) plus a parameter of the same shape.
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "convolve": lambda x: functional.conv3d(x, KERNEL, x.mean((0, 2, 3, 4)).repeat(2)[:6]),
    "convolve by itself": lambda x: functional.conv3d(
        x, x[:, :, :2, :3, :2], stride=(2, 1, 2), padding=(1, 2, 0), dilation=(2, 1, 3)
    ),
    "convolve in groups": lambda x: functional.conv3d(
        x, x.reshape(4, 2, 5, 6, 7)[..., :2, :3, :2], padding=1, groups=2
    ),
    "convolve each channel": lambda x: functional.conv3d(
        x, x[:1, :, :3, :2, :1].transpose(0, 1), padding="same", groups=4
    ),
    "convolve one volume": lambda x: functional.conv3d(x[0], KERNEL, padding="valid"),
    "transposed": lambda x: functional.conv_transpose3d(
        x, x[:1, :, :3, :2, :2].transpose(0, 1), stride=(2, 1, 2), padding=(2, 0, 1)
    ),
    "transposed in groups": lambda x: functional.conv_transpose3d(
        x, KERNEL[:4, :3], groups=2, dilation=(1, 2, 1), stride=(3, 2, 1), output_padding=(2, 1, 0)
    ),
    "transposed, one volume": lambda x: functional.conv_transpose3d(
        x[0], KERNEL[:4, :3], x.mean((0, 2, 3, 4))[:3]
    ),
    "max pool": lambda x: functional.max_pool3d(x, 3, 2, 1),
    "max pool dilated": lambda x: functional.max_pool3d(x, 2, 1, 0, dilation=(1, 2, 3)),
    "max pool ceil": lambda x: functional.max_pool3d(x[0], (2, 3, 2), ceil_mode=True),
    "max pool with ties": lambda x: functional.max_pool3d(x.clamp(min=0.5), 2),
    "average pool": lambda x: functional.avg_pool3d(x, (2, 1, 3), (1, 2, 2)),
    "average pool ceil, padded": lambda x: functional.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
    "average pool, padding not counted": lambda x: functional.avg_pool3d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=False
    ),
    "average pool, own divisor": lambda x: functional.avg_pool3d(x[0], 2, divisor_override=3),
    "pictures, ceil, padded": lambda x: functional.avg_pool2d(x[0], 3, 2, 1, ceil_mode=True),
    "response norm of volumes": lambda x: functional.local_response_norm(x, 3),
    "response norm of pictures": lambda x: functional.local_response_norm(x[0], 2, 0.1, 0.5),
}


def unpooled(x: torch.Tensor, kernel: int, stride: int | None = None, **how: int) -> torch.Tensor:
    """Max-pool lines, pictures or volumes, and unpool the result."""
    name = {3: "1d", 4: "2d", 5: "3d"}[x.dim()]
    pool, back = (getattr(functional, f"max_{word}{name}") for word in ("pool", "unpool"))
    y, places = pool(x, kernel, stride, **how, return_indices=True)
    padding = how.get("padding", 0)
    return back(y.square(), places, kernel, stride, padding, output_size=x.shape[2:])


FUNCTIONS |= {
    "unpool lines": lambda x: unpooled(x.reshape(2, 4, 210), 3),
    "unpool pictures": lambda x: unpooled(x[0], 2),
    "unpool pictures whose windows overlap": lambda x: unpooled(x[0], 3, 2, padding=1),
    "unpool volumes": lambda x: unpooled(x, 2),
    "indices of one picture": lambda x: (
        x[0, 0, 0].square().mean()
        * functional.max_pool2d(x[0, 0], 3, 2, 1, return_indices=True)[1].float()
    ),
    "dilated indices": lambda x: (
        x.square().mean() * functional.max_pool2d(x[0], 2, 1, 0, 2, return_indices=True)[1].float()
    ),
    "ceil indices": lambda x: (
        x.square().mean()
        * functional.max_pool3d(x, 2, 2, 1, ceil_mode=True, return_indices=True)[1].float()
    ),
    "indices with ties": lambda x: (
        x.square().mean()
        * functional.max_pool2d(x[0].clamp(min=0.5), 2, return_indices=True)[1].float()
    ),
    "indices of bins": lambda x: (
        x.square().mean()
        * functional.adaptive_max_pool2d(x[0], (3, 7), return_indices=True)[1].float()
    ),
}


class Segments(nn.Module):
    """Downsamples by pooling and upsamples by unpooling, as SegNet does."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, places = functional.max_pool2d(self.down(x).relu(), 2, return_indices=True)
        return self.up(functional.max_unpool2d(y, places, 2)).mean((2, 3))


def sampling(
    dims: int, mode: str, padding: str, corners: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.grid_sample(
        x if dims == 3 else x[:, :, 0],
        0.9 * x[:, :dims].movedim(1, -1) if dims == 3 else 0.9 * x[:, :2, 1].movedim(1, -1),
        mode,
        padding,
        corners,
    )


SAMPLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f"{dims} dimensions, {mode}, {padding}, {'corners' if corners else 'edges'}": sampling(
        dims, mode, padding, corners
    )
    for dims, mode in ((2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"))
    for padding in ("zeros", "border", "reflection")
    for corners in ((True, False) if padding == "reflection" else (False,))
}
FUNCTIONS |= SAMPLED


@pytest.mark.parametrize("name", FUNCTIONS)
def test_volumes_and_their_gradients_equal_pytorch(name: str) -> None:
    check_function(FUNCTIONS[name], VOLUME)


def test_a_net_of_volumes_trains_in_c_as_in_pytorch() -> None:
    model = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.ConvTranspose3d(4, 3, 2, 2),
        nn.AvgPool3d(2),
        nn.Flatten(),
        nn.Linear(54, 5),
    )
    batch = torch.randn(2, 1, 4, 6, 7), torch.tensor([1, 4])
    check_steps(model, [batch] * 3, 0.05, resume=False)


def test_the_index_of_a_maximum_is_never_padding() -> None:
    x = torch.full((1, 1, 4, 4), -torch.inf)
    pool = Function(lambda x: functional.max_pool2d(x, 3, 1, 1, return_indices=True))
    graph = from_torch(pool, (x,))
    found = run(graph, arrays_of(graph, (x,)))["output.1"]
    np.testing.assert_array_equal(found, functional.max_pool2d(x, 3, 1, 1, return_indices=True)[1])


def test_a_net_that_unpools_trains_in_c_as_in_pytorch() -> None:
    batches = [(torch.randn(3, 2, 6, 6), torch.tensor([0, 1, 2])) for _ in range(3)]
    check_steps(Segments(), batches, 0.05, resume=False)
