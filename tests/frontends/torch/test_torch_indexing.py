"""Indexed reads and writes, sorting, bins and empty tensors, compared with PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, arrays_of, check_forward
from pockengine.tests.frontends.torch.gradients import check_function

SHAPE = (3, 4, 5)
ROWS, COLUMNS = torch.tensor([[2, 0], [-1, 1]]), torch.tensor([3, -4])
TWICE = torch.tensor([1, 3, 1, 0])


def put(x: torch.Tensor, accumulate: bool) -> torch.Tensor:
    values = x[:2, :2, :1] * torch.tensor(3.0)
    return x.index_put((ROWS, COLUMNS), values.expand(2, 2, 5), accumulate=accumulate)


def put_around(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[ROWS, :, COLUMNS] = x.sum(2)[0]
    return y


def written_column(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[:, torch.full((), 1)] = 0.5
    return y


def scattered(reduce: str, include_self: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        index = torch.arange(24).reshape(2, 4, 3).remainder(3)
        return x.scatter_reduce(0, index, 2 * x[:2, :, 1:4], reduce, include_self=include_self)

    return function


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "two indices": lambda x: x[ROWS, COLUMNS],
    "two separated indices": lambda x: x[ROWS, :, COLUMNS],
    "indices at the end": lambda x: x[..., TWICE, TWICE],
    "a constant integer and indices": lambda x: x[torch.arange(3), torch.full((), 1)],
    "a written constant column": written_column,
    "a part without elements": lambda x: torch.cat([y.cos() for y in x.split([3, 0, 1], 1)], 1),
    "take": lambda x: x.take(ROWS * 7),
    "take along, broadcast": lambda x: x.take_along_dim(COLUMNS.reshape(1, 2, 1) % 4, 1),
    "put": lambda x: put(x, accumulate=False),
    "put and add": lambda x: put(x, accumulate=True),
    "put twice": lambda x: x.index_put((TWICE % 3,), x[:1].expand(4, 4, 5) * TWICE[:, None, None]),
    "put around a dimension": put_around,
    "index add": lambda x: x.index_add(1, TWICE, x.flip(1), alpha=2),
    "index copy": lambda x: x.index_copy(2, COLUMNS % 5, x[:, :, :2] * 2),
    "index fill": lambda x: x.index_fill(1, TWICE, 3.0),
    "scatter": lambda x: x.scatter(1, TWICE.reshape(1, 4, 1).expand(2, 4, 5), x[1:].square()),
    "scatter a number": lambda x: x.scatter(2, ROWS.reshape(1, 2, 2) % 3, 1.5),
    "scatter to a mask": lambda x: x * (x > -9).scatter(1, x.topk(2, 1).indices, False),
    "scatter of masks": lambda x: x * (x > 0).scatter(1, TWICE.expand(3, 5, 4).mT, x > 0.5),
    "scatter to integers": lambda x: x * x.argsort(1).scatter(1, TWICE.expand(3, 5, 4).mT, 7),
    "scatter sum": scattered("sum", True),
    "scatter mean without self": scattered("mean", False),
    "scatter maximum": scattered("amax", True),
    "scatter minimum without self": scattered("amin", False),
    "scatter product": scattered("prod", True),
    "sort": lambda x: torch.sort(x, 1, descending=True).values,
    "gather by sorted indices": lambda x: (x * 2).gather(2, torch.sort(x, 2).indices),
    "gather from a vector": lambda x: x[0, 0].gather(-1, x[0, 0].argmin(-1)) * x,
    "gather of one element": lambda x: x[0, 0, 0].gather(0, torch.tensor([0])) * x,
    "top 2": lambda x: x.topk(2, 1).values,
    "smallest 3": lambda x: x.topk(3, -1, largest=False).values,
    "running maximum": lambda x: x.cummax(1).values * x.cummax(1).indices,
    "running minimum": lambda x: x.round().cummin(-1).values * x,
    "third smallest": lambda x: x.kthvalue(3, 1).values,
    "median": lambda x: x.median(2).values + x.median(),
    "quantile by sorting": lambda x: torch.sort(x.flatten()).values[7:9].mean(),
    "pooled indices": lambda x: functional.max_pool2d(x, 2, return_indices=True)[0],
    "distances": lambda x: torch.cdist(x, x * 2 + 1),
    "in place by a definition": lambda x: (x * 1).clamp_min_(torch.tensor(0.2)),
    "distances of pairs": lambda x: functional.pdist(x.flatten(1)),
    "bilinear form": lambda x: functional.bilinear(x, x + 1, torch.ones(2, 5, 5) / 5),
    "adaptive maxima": lambda x: functional.adaptive_max_pool2d(x, (3, 2)),
    "adaptive means of volumes": lambda x: functional.adaptive_avg_pool3d(x[None], (2, 4, 3)),
    "instance norm": lambda x: functional.instance_norm(x),
    "cubic resizing": lambda x: functional.interpolate(x[None], (7, 3), mode="bicubic"),
    "grid of samples": lambda x: functional.grid_sample(
        x[None], torch.tensor([[[[0.1, -0.3], [0.9, 0.4]]]]), align_corners=False
    ),
    "empty concatenation": lambda x: torch.cat([x[:, :0], x * 2, torch.zeros(3, 0, 5)], 1),
    "sum over an empty dimension": lambda x: x[:, :, :0].sum(2) + x[:, :, 0],
    "product over an empty dimension": lambda x: x[:, :, :0] @ torch.zeros(3, 0, 2) + x[:, :, :2],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_and_its_gradient_equal_pytorch(name: str) -> None:
    torch.manual_seed(3)

    check_function(FUNCTIONS[name], SHAPE)


def test_integers_divide_and_masks_count_exactly() -> None:
    numbers = torch.tensor([-(2**30) - 1, -7, -6, 0, 6, 7, 2**30 + 1])

    for by in (3, -3, 1):
        check_forward(
            Function(
                lambda x, by=by: (
                    torch.div(x, by, rounding_mode="floor"),
                    torch.div(x, by, rounding_mode="trunc"),
                    x.remainder(by),
                )
            ),
            numbers,
            tolerance=0.0,
        )
    check_forward(
        Function(lambda x: ((x > 0).sum(), (x > 0).any(), (x < 0).all(), x.clamp(-7, 6))),
        numbers,
        tolerance=0.0,
    )


def outputs_by_seed(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> list[np.ndarray]:
    graph = from_torch(Function(function), (x,))
    name = graph.inputs[0].name
    return [run(graph, {name: x.numpy(), "seed": np.int32(seed)})["output"] for seed in (1, 1, 2)]


def test_dropout_of_channels_drops_whole_channels() -> None:
    x = torch.ones(8, 16, 3, 3)
    first, again, other = outputs_by_seed(lambda x: functional.dropout2d(x, 0.25), x)

    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    channels = first.reshape(128, 9)
    assert np.all(channels == channels[:, :1])
    np.testing.assert_allclose(np.unique(channels), [0, 4 / 3], rtol=1e-6)
    assert 0.15 < np.mean(channels == 0) < 0.35


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    torch.manual_seed(0)
    x = torch.randn(100, 100)
    first, again, _ = outputs_by_seed(lambda x: functional.alpha_dropout(x, 0.2, training=True), x)

    assert np.array_equal(first, again)
    assert abs(first.mean()) < 0.05
    assert abs(first.std() - 1) < 0.05
    limit = functional.alpha_dropout(torch.zeros(1000), 0.2, training=True).min()
    assert np.isclose(first, float(limit), rtol=1e-5).mean() == pytest.approx(0.2, abs=0.03)


def test_attention_applies_dropout() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 6, 4)
    plain = functional.scaled_dot_product_attention(x, x, x)
    first, again, _ = outputs_by_seed(
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), x
    )

    assert np.array_equal(first, again)
    assert not np.allclose(first, plain.numpy())


def written_integers(i: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    z = i * 1
    z[k] = i[:3] * 2**40
    z[:, k] = z[:, 3:6] + 1
    z[1, k] = 7
    return z


def written_booleans(i: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    z = i > 4
    z[k, k] = k > 1
    return z.long()


@pytest.mark.parametrize("function", [written_integers, written_booleans])
def test_writes_of_integers_at_indices_are_exact(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    numbers, places = torch.randint(0, 9, (4, 6)), torch.tensor([2, 0, 2])

    graph = from_torch(Function(function), (numbers, places))
    (found,) = run(graph, arrays_of(graph, (numbers, places))).values()

    assert (found == function(numbers, places).numpy()).all()


@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 1), (7, 0.1, 0.7), (3, -1, 2)])
def test_histogram_counts_as_pytorch_does(bins: int, low: float, high: float) -> None:
    edges = [0, 0.1, 0.5, 0.25, 0.75, 1, 1.0001, -0.1, torch.nan, torch.inf, -0.0]
    x = torch.tensor([*edges, *torch.rand(200)])

    check_forward(Function(lambda x: torch.histc(x, bins, low, high)), x, tolerance=0)


def test_histogram_over_the_range_of_the_data_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"histc .*pass min and max"):
        from_torch(Function(torch.histc), (torch.rand(4),))


def inside(place: torch.Tensor) -> Any:
    number = place.item()
    torch._check(number >= 0)
    torch._check(number < 4)
    return number


def written_at(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Write one row of a cache, as a decoder does for the next token."""
    cache, at = x * 0.5, inside(place[0])
    cache.narrow(0, at, 1).copy_(x[:1].sin())
    cache.select(0, inside(place[1])).add_(x[3])
    return cache * x


def read_at(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    first = inside(place[0])
    rows = x.narrow(0, first, 1) + x[first : first + 1]
    return rows * first + x[place[1]] * x.mean().item() - x.select(0, first) * (3 - first)


def strided_at(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    whole = x * 2.0
    row = whole.select(0, inside(place[0])).view(-1)
    row[::2] += 1.0
    return row.norm() * whole


def repeated(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Repeat rows by lengths of a known sum, as a length regulator does."""
    lengths = torch.cat([place, torch.tensor([3, 2]) - place])
    rows = torch.repeat_interleave(input=x, repeats=lengths, dim=0, output_size=5)
    return rows * x[:1].repeat_interleave(5, 0)


def segments(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Slice a segment out of each row, as a vocoder's training does."""
    cut = torch.zeros_like(x[:2, :3])
    for row in range(2):
        start = place[row]
        cut[row] = x[row, start : start + 3]
    return cut * x[1, :3]


@pytest.mark.parametrize("function", [written_at, read_at, strided_at, repeated, segments])
def test_slices_at_data_dependent_positions(function: Callable[..., torch.Tensor]) -> None:
    module = Scaled(function)
    x = torch.randn(4, 6)

    compile(module, (x, torch.tensor([1, 0])), check=True)
    graph = check_forward(module, x, torch.tensor([1, 0]))
    other = (x, torch.tensor([0, 2]))

    (found,) = run(graph, arrays_of(graph, other)).values()

    np.testing.assert_allclose(found, module(*other).detach().numpy(), rtol=1e-5)


def test_an_unbounded_data_dependent_index_names_the_missing_check() -> None:
    def add(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        whole = x * 2.0
        whole[place[1], :].add_(1.0)
        return whole

    with pytest.raises(ImportModelError, match=r"torch\._check\(place >= 0\)"):
        from_torch(Scaled(add), (torch.randn(4, 6), torch.tensor([0, 1])))


class Scaled(nn.Module):
    """A loss of a function of scaled inputs."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, -1.0, 0.5, 3.0, 1.5]))
        self.function = function

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.function(x * self.scale, place)
        return y.square().sum()
