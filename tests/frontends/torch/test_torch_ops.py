"""One operator at a time: the oracle's results and gradients equal PyTorch's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.compiler.ir.evaluate import run
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import (
    Function,
    check_forward,
    relative_error,
)
from pockengine.tests.frontends.torch.gradients import check_function

PICTURE = (2, 6, 5, 7)

LABELS = torch.tensor([1, 4])

# Functions, applied to a picture (2, 6, 5, 7) plus a parameter of the same shape.
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + 2 * x,
    "add scaled": lambda x: torch.add(x, x * x, alpha=0.5),
    "add number": lambda x: 1.5 + x,
    "subtract": lambda x: x - x * x,
    "subtract from number": lambda x: 1 - x,
    "multiply by number": lambda x: 3 * x,
    "divide": lambda x: x / (x * x + 1),
    "divide by number": lambda x: x / 4,
    "divide number": lambda x: 2 / (x * x + 1),
    "negate": lambda x: -x,
    "broadcast channels": lambda x: x * x.mean((0, 2, 3), keepdim=True),
    "broadcast rows": lambda x: x + x.mean((0, 1, 2)),
    "broadcast matrix": lambda x: x * x.mean((0, 1)),
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardtanh": lambda x: functional.hardtanh(x, -0.5, 0.75),
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": lambda x: torch.log(x * x + 0.5),
    "sqrt": lambda x: torch.sqrt(x * x + 0.5),
    "rsqrt": lambda x: torch.rsqrt(x * x + 0.5),
    "abs": torch.abs,
    "square": torch.square,
    "cube": lambda x: x**3,
    "inverse": lambda x: (x * x + 1) ** -1,
    "clamp": lambda x: x.clamp(-0.5, 1),
    "clamp below": lambda x: x.clamp_min(0.25),
    "clamp above": lambda x: x.clamp(max=0.25),
    "maximum": lambda x: torch.maximum(x, 0.5 * x),
    "minimum": lambda x: torch.minimum(x, 0.5 * x),
    "where": lambda x: torch.where(x > 0.1, x, x * x),
    "masked fill": lambda x: x.masked_fill(x < 0, 0.5),
    "max pool": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "max pool ceil": lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
    "max pool ceil padded": lambda x: functional.max_pool2d(x, 2, 2, 1, ceil_mode=True),
    "max pool dilated": lambda x: functional.max_pool2d(x, 2, 1, 0, dilation=2),
    "average pool": lambda x: functional.avg_pool2d(x, (2, 3)),
    "average pool padded": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "average pool without padding": lambda x: functional.avg_pool2d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "average pool ceil": lambda x: functional.avg_pool2d(x, 2, ceil_mode=True),
    "average pool own divisor": lambda x: functional.avg_pool2d(x, 2, divisor_override=3),
    "adaptive average pool to one": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive average pool in one dimension": lambda x: functional.adaptive_avg_pool2d(x, (5, 1)),
    "adaptive average pool unchanged": lambda x: functional.adaptive_avg_pool2d(x, (None, 7)),
    "adaptive average pool uneven": lambda x: functional.adaptive_avg_pool2d(x, (4, 9)),
    "max pool with indices": lambda x: functional.max_pool2d(x, 2, return_indices=True)[0],
    "bilinear": lambda x: functional.interpolate(x, (8, 3), mode="bilinear"),
    "bilinear by scale": lambda x: functional.interpolate(
        x, scale_factor=(1.7, 0.6), mode="bilinear", recompute_scale_factor=False
    ),
    "bilinear with corners": lambda x: functional.interpolate(
        x, (8, 11), mode="bilinear", align_corners=True
    ),
    "transposed convolution of one picture": lambda x: functional.conv_transpose2d(
        x[0], x[:1, :, :2, :2].transpose(0, 1), stride=2, output_padding=1
    ),
    "transposed convolution padded far": lambda x: functional.conv_transpose2d(
        x, x[:1, :, :2, :2].transpose(0, 1), stride=(1, 2), output_padding=(2, 1), dilation=3
    ),
    "bilinear, smoothed": lambda x: functional.interpolate(
        x, (3, 9), mode="bilinear", antialias=True
    ),
    "bicubic, smoothed, by scale": lambda x: functional.interpolate(
        x, scale_factor=(0.45, 1.7), mode="bicubic", antialias=True
    ),
    "covariances": lambda x: x[0, 0].cov() + torch.cov(x[0, 1, 0]),
    "correlations": lambda x: torch.corrcoef(x[0, 0]),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "median of numbers": lambda x: torch.where(x > 1, torch.nan, x).nanmedian(3)[0],
    "quantiles": lambda x: torch.quantile(x, torch.tensor([0.1, 0.5]), dim=1),
    "searchsorted": lambda x: x * torch.searchsorted(x.sort()[0].detach(), x.detach()),
    "nearest": lambda x: functional.interpolate(x, (9, 3)),
    "nearest by scale": lambda x: functional.interpolate(x, scale_factor=1.7),
    "pad by reflection": lambda x: functional.pad(x, (2, 1, 0, 3), "reflect"),
    "pad by the border": lambda x: functional.pad(x, (2, 1, 0, 3), "replicate"),
    "pad around": lambda x: functional.pad(x, (2, 1, 0, 3), "circular"),
    "unfold": lambda x: functional.unfold(x, 3, padding=1),
    "diagonal": lambda x: x.diagonal(1, 2, 3),
    "remainder": lambda x: torch.remainder(x, 0.7),
    "inverse hyperbolic sine": lambda x: torch.asinh(x * 100),
    "by PyTorch's definition": lambda x: torch.addcmul(x, x, x, value=0.5).frac().logaddexp(x),
    "transposed convolution uncropped": lambda x: functional.conv_transpose2d(
        x, x[:1, :, :2, :2].transpose(0, 1), stride=2, padding=2, output_padding=3, dilation=4
    ),
    "smoothed cross entropy of probabilities": lambda x: functional.cross_entropy(
        x, x.flip(1).softmax(1), torch.arange(6.0), label_smoothing=0.1
    ),
    "cross entropy of probabilities per row": lambda x: functional.cross_entropy(
        x, x.flip(1).softmax(1), reduction="none"
    ),
    "maximum of a scalar": lambda x: x.mean().max(0)[0] * x.sum().cumsum(0),
    "scatter add": lambda x: x.scatter_add(
        1, torch.tensor([[[[0]], [[0]], [[5]]]]), x[:1, :3, :1, :1]
    ),
    "norm of zeros": lambda x: torch.linalg.vector_norm(functional.relu(x - 1), dim=3),
    "norm of another order": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "index by a tensor": lambda x: x[:, torch.tensor([[1, -1], [0, 1]])],
    "copysign": lambda x: torch.copysign(x.square(), x),
    "scalar with dimensions": lambda x: x.mean().transpose(0, 0).index_select(0, torch.tensor(0)),
    "transposed convolution of a line": lambda x: functional.conv_transpose1d(
        x[:, :, 0], x[:1, :, :2, 0].transpose(0, 1), stride=2, padding=1, output_padding=1
    ),
    "softmax of a scalar": lambda x: x.mean().softmax(0) * x,
    "mean": lambda x: x.mean(),
    "mean of channels": lambda x: x.mean(1),
    "mean with keepdim": lambda x: x.mean((-1, -2), keepdim=True),
    "sum": lambda x: x.sum((0, 2)),
    "maximum over space": lambda x: x.amax((2, 3)),
    "flatten": lambda x: x.flatten(1),
    "flatten pixels": lambda x: x.flatten(2).transpose(1, 2),
    "view": lambda x: x.view(2, 3, -1),
    "reshape after pooling": lambda x: x.mean((2, 3), keepdim=True).reshape(2, -1),
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous() * 2,
    "transpose and view": lambda x: x.transpose(1, 3).reshape(2, 7, 30),
    "squeeze": lambda x: x.mean((2, 3), keepdim=True).squeeze(),
    "squeeze one": lambda x: x.mean(2, keepdim=True).squeeze(2).squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(2) * x.unsqueeze(1),
    "concatenate": lambda x: torch.cat([x, x * x, x[:, :2]], 1),
    "stack": lambda x: torch.stack([x, x * x], 2),
    "pad": lambda x: functional.pad(x, (1, 2, 0, 1)),
    "pad channels": lambda x: functional.pad(x, (0, 0, 0, 0, 2, 1), value=0.5),
    "crop": lambda x: functional.pad(x, (-1, 2, -1, -1)),
    "slice": lambda x: x[:, 1:, ::2, 1:-1],
    "select": lambda x: x[:, 2] * x[:, -1],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "chunk": lambda x: torch.cat(x.chunk(4, 1)[::-1], 1),
    "split": lambda x: x.split([1, 5], 1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "expand": lambda x: x.mean(1, keepdim=True).expand(-1, 6, -1, -1) * x,
    "channel shuffle": lambda x: functional.channel_shuffle(x, 3),
    "pixel shuffle": lambda x: functional.pixel_shuffle(x[:, :4], 2),
    "softmax of channels": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(-1),
    "log softmax": lambda x: functional.log_softmax(x, 1),
    "matmul": lambda x: x @ x.transpose(2, 3),
    "matmul plain": lambda x: x @ x[0, 0].t(),
    "matrix times vector": lambda x: x @ x[0, 0, 0],
    "vector times matrix": lambda x: x[0, 0, :, 0] @ x[1],
    "addmm": lambda x: torch.addmm(x[0, 0, 0, :5], x[0, 1], x[1, 2].t(), beta=0.5, alpha=2),
    "cross entropy": lambda x: functional.cross_entropy(x.mean((2, 3)), LABELS),
    "cross entropy summed": lambda x: functional.cross_entropy(
        x.mean((2, 3)), LABELS, reduction="sum"
    ),
    "cross entropy smoothed": lambda x: functional.cross_entropy(
        x.mean((2, 3)), LABELS, label_smoothing=0.1
    ),
    "cross entropy per row": lambda x: functional.cross_entropy(
        x.mean((2, 3)), LABELS, reduction="none"
    ),
    "cross entropy without a label": lambda x: functional.cross_entropy(
        x.mean((2, 3)), LABELS, ignore_index=1
    ),
    "cross entropy of weighted classes": lambda x: functional.cross_entropy(
        x,
        torch.arange(70).reshape(2, 5, 7) % 6,
        weight=torch.linspace(0.5, 1.5, 6),
        ignore_index=2,
        label_smoothing=0.2,
    ),
    "cross entropy of pixels": lambda x: functional.cross_entropy(
        x, torch.arange(70).reshape(2, 5, 7) % 6
    ),
    "cross entropy of mixed labels": lambda x: functional.cross_entropy(x, x.softmax(1)),
    "log likelihood of any scores": lambda x: functional.nll_loss(
        x, torch.arange(70).reshape(2, 5, 7) % 6, reduction="sum"
    ),
    "log likelihood": lambda x: functional.nll_loss(
        functional.log_softmax(x[:, :, 0, 0], 1), LABELS
    ),
    "mean squared error": lambda x: functional.mse_loss(x, x * x),
    "squared errors": lambda x: functional.mse_loss(x, torch.ones_like(x), reduction="none"),
    "absolute error": lambda x: functional.l1_loss(x, 2 * x),
    "power": lambda x: x.abs() ** 1.7,
    "power of two tensors": lambda x: x.abs() ** x,
    "number to a power": lambda x: 2**x,
    "sine": torch.sin,
    "atan2": lambda x: torch.atan2(x, x * x + 0.5),
    "error function": torch.erf,
    "log1p of expm1": lambda x: torch.log1p(torch.expm1(x).abs()),
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "elu": lambda x: functional.elu(3 * x, 0.7),
    "celu": lambda x: functional.celu(x, 0.7),
    "selu": functional.selu,
    "leaky relu": functional.leaky_relu,
    "prelu": lambda x: functional.prelu(x, x[0, :, 0, 0]),
    "softplus": lambda x: functional.softplus(10 * x, 2, 5),
    "log sigmoid": lambda x: functional.logsigmoid(20 * x),
    "mish": functional.mish,
    "softsign": functional.softsign,
    "threshold": lambda x: functional.threshold(x, 0.1, 0.5),
    "gated linear unit": lambda x: functional.glu(x, 1),
    "minimum over space": lambda x: x.amin((2, 3), keepdim=True),
    "largest along a dimension": lambda x: x.max(1)[0],
    "smallest along a dimension": lambda x: x.min(2, keepdim=True)[0],
    "largest of all": lambda x: x.max() * x.min(),
    "argmax": lambda x: x + x.argmax(3, keepdim=True) + x.argmin(1, keepdim=True),
    "product": lambda x: x.prod(2) + x[:, :2, :2, :2].prod(),
    "variance": lambda x: x.var((2, 3)) + x.var((2, 3), unbiased=False),
    "standard deviation": lambda x: x.std() + x.std(1, keepdim=True),
    "log of summed powers": lambda x: x.logsumexp((1, 2)) + x.logsumexp(-1, keepdim=True).sum(),
    "running sum": lambda x: x.cumsum(1),
    "layer norm": lambda x: functional.layer_norm(x, (5, 7), x[0, 0], x[0, 1]),
    "layer norm of channels": lambda x: functional.layer_norm(x.permute(0, 2, 3, 1), (6,)),
    "root mean square norm": lambda x: functional.rms_norm(x, (7,), x[0, 0, 0]),
    "group norm": lambda x: functional.group_norm(x, 3, x[0, :, 0, 0], x[1, :, 0, 0]),
    "embedding": lambda x: functional.embedding(torch.tensor([[4, 0], [4, 2]]), x[0, 0]),
    "index select": lambda x: x.index_select(1, torch.tensor([5, 5, 0])),
    "gather": lambda x: x.gather(2, torch.tensor([[[[1, 4, 0]], [[2, 2, 2]]]])),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x * x, x),
    "causal attention": lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "masked attention": lambda x: functional.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.eye(5) < 1
    ),
    "biased attention of grouped heads": lambda x: functional.scaled_dot_product_attention(
        x, x[:, :2], x[:, 1:3], attn_mask=x[0, 0, :, :5], scale=0.3, enable_gqa=True
    ),
    "flip": lambda x: x.flip(1, 3) * x,
    "resize": lambda x: functional.interpolate(x, scale_factor=(2, 3)),
    "huber": lambda x: functional.huber_loss(x, 2 * x + 1, delta=0.7),
    "smooth absolute error": lambda x: functional.smooth_l1_loss(x, 2 * x + 1, beta=0.7),
    "binary cross entropy": lambda x: functional.binary_cross_entropy_with_logits(
        5 * x, torch.ones_like(x) * 0.3
    ),
    "dropout at rate 0": lambda x: functional.dropout(x, 0.0),
    "dropout in evaluation": lambda x: functional.dropout(x, 0.5, training=False),
    "clone and detach of a constant": lambda x: x.clone() + torch.ones(7).detach(),
    "cast of a mask": lambda x: x * (x > 0).float(),
    "arange": lambda x: x * torch.arange(7),
    "in place chain": lambda x: (x * 1).add_(1).mul_(2).relu_(),
    "in place quotient": lambda x: (x.detach() * 3).floor_divide_(x.detach().abs() + 0.5) * x,
    "in place through aliases": lambda x: _in_place_through_aliases(x),
}


def _in_place_through_aliases(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    alias = y.view(2, 6, 5, 7)
    functional.relu_(alias)
    return y + alias


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_and_its_gradient_equal_pytorch(name: str) -> None:
    torch.manual_seed(2)

    check_function(FUNCTIONS[name], PICTURE)


LAYERS = {
    "3x3": lambda: nn.Conv2d(6, 4, 3),
    "same padding": lambda: nn.Conv2d(6, 4, (2, 4), padding="same"),
    "valid padding": lambda: nn.Conv2d(6, 4, 2, padding="valid"),
    "strided": lambda: nn.Conv2d(6, 4, 3, stride=(2, 3), padding=(1, 2)),
    "dilated": lambda: nn.Conv2d(6, 4, 3, padding=2, dilation=2, bias=False),
    "dilated same": lambda: nn.Conv2d(6, 4, (3, 2), padding="same", dilation=(1, 3)),
    "grouped": lambda: nn.Conv2d(6, 9, 3, groups=3),
    "depthwise": lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6),
    "depthwise with multiplier": lambda: nn.Conv2d(6, 12, 3, stride=2, groups=6),
    "pointwise": lambda: nn.Conv2d(6, 8, 1),
    "one-dimensional": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(6, 4, 3, 2, 1)),
    "one-dimensional same": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(6, 6, 4, padding="same", dilation=2, groups=3, bias=False)
    ),
    "one-dimensional average": lambda: nn.Sequential(nn.Flatten(2), nn.AdaptiveAvgPool1d(7)),
    "transposed": lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
    "transposed grouped": lambda: nn.ConvTranspose2d(6, 9, (2, 3), groups=3, dilation=2),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "layer norm": lambda: nn.LayerNorm((5, 7)),
    "parametric relu": lambda: nn.PReLU(6),
    "linear on the last dimension": lambda: nn.Linear(7, 3),
    "linear without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(210, 3, bias=False)),
    "batch norm": lambda: nn.BatchNorm2d(6),
    "batch norm without affine": lambda: nn.BatchNorm2d(6, affine=False),
    "batch norm without statistics": lambda: nn.BatchNorm2d(6, track_running_stats=False),
    "batch norm of rows": lambda: nn.Sequential(nn.Flatten(2), nn.BatchNorm1d(6)),
    "batch norm of features": lambda: nn.Sequential(nn.Flatten(1), nn.BatchNorm1d(210)),
    "frozen batch norm": lambda: nn.BatchNorm2d(6).eval(),
    "global average": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "identity": nn.Identity,
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_pytorch(name: str) -> None:
    torch.manual_seed(2)

    check_forward(LAYERS[name](), torch.randn(8, *PICTURE[1:]))


@pytest.mark.parametrize("layer", [nn.Conv2d(6, 4, 3), nn.MaxPool2d(2), nn.AvgPool2d(2)])
def test_single_picture_needs_no_batch(layer: nn.Module) -> None:
    check_forward(layer, torch.randn(PICTURE[1:]))


@pytest.mark.parametrize("momentum", [0.1, 0.5])
def test_running_statistics_follow_pytorch(momentum: float) -> None:
    torch.manual_seed(2)
    model = nn.BatchNorm2d(6, momentum=momentum)
    x = torch.randn(PICTURE) * 3 + 1
    graph = from_torch(model, (x,))
    params = {name: param.data for name, param in graph.params.items()}

    for _ in range(3):
        run(graph, {"input": x.numpy()}, params)
        model(x)

    assert relative_error(params["running_mean"], model.running_mean) < 1e-5
    assert relative_error(params["running_var"], model.running_var) < 1e-5


def test_rounding_equals_pytorch() -> None:
    x = torch.tensor([-2.5, -1.5, -0.2, 0.5, 1.5, 1.7])

    check_forward(Function(lambda x: (x.round(), x.floor(), x.ceil(), x.trunc())), x)


def test_floor_division_keeps_the_sign_of_zero() -> None:
    x = torch.tensor([-0.0, 0.0, -0.0, -0.3])

    check_forward(Function(lambda x: torch.copysign(torch.ones(4), x // 2)), x)


def test_dropout_has_its_rate_and_masks_the_gradient_equally() -> None:
    x = torch.ones(40, 50)
    graph = from_torch(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.3), nn.Dropout(0.5)), (x,))
    assert [(value.name, value.shape) for value in graph.inputs[1:]] == [("seed", ())]
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.3))
    graph = from_torch(model, (x,))

    first, again, other = (
        run(graph, {"input": x.numpy(), "seed": np.int32(seed)})["output"] for seed in (1, 1, 2)
    )

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.7)}
    assert 0.25 < (first == 0).mean() < 0.35


def test_integers_and_masks_import() -> None:
    indices = torch.tensor([[1, 2, 3]])

    check_forward(
        Function(lambda n, mask: (n * 2 + 1) * mask + (n > 1).to(torch.int64)),
        indices,
        torch.tensor([[True, False, True]]),
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(-1),
        lambda x: x.var(0, unbiased=False),
        lambda x: x.std(0, unbiased=False),
        lambda x: x.logsumexp(0),
        lambda x: x * x.argmax(-1),
    ],
)
def test_a_scalar_accepts_a_dimension(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    check_function(function, ())
