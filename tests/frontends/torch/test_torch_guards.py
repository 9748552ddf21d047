"""Guards against empty selections are accepted if they only skip work, and refused otherwise."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.mixture import Mixture, Route


def skipping(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        row, place = torch.where(chosen == e)
        if row.numel() == 0:
            continue
        out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    return out


def guarded(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    total = x.sum() * 0
    for e, expert in enumerate(experts):
        rows = x[chosen[:, 0] == e]
        if rows.shape[0] > 0:
            total = total + expert(rows).square().sum()
    return total


def querying(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        mask = chosen == e
        row, place = torch.where(mask)
        if len(row) == 0 or not mask.any() or mask.sum() == 0 or not mask.sum().item():
            continue
        out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    return out


def counting(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        mask = chosen[:, 0] == e
        if mask.any().item() and torch.count_nonzero(mask) >= 1 and mask.float().sum() > 0:
            rows = mask.nonzero().squeeze(-1)
            out[rows] += expert(x[rows]) * weights[rows, :1]
    return out


def numbered(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Several ways to count rows, among them DeepSeek's."""
    out = torch.zeros_like(x)
    counts = torch.bincount(chosen.flatten(), minlength=len(experts))
    listed, hot = counts.tolist(), nn.functional.one_hot(chosen, len(experts)).permute(2, 0, 1)
    found = [int(n) for n in (chosen.unsqueeze(-1) == torch.arange(len(experts))).sum((0, 1))]
    for e, expert in enumerate(experts):
        if counts[e] == 0 or listed[e] == 0 or found[e] == 0 or not (hot.sum((1, 2)) > 0)[e]:
            continue
        row, place = torch.where(hot[e])
        out[row] += expert(x[row]) * weights[row, place, None]
    return out


def inverted(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        mask = chosen == e
        if (~mask).all() or (chosen != e).all() or mask.float().sum().item() == 0:
            continue
        if int(mask.sum()) > 0:
            row, place = torch.where(mask)
            out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    if not (x > 9).all():
        out = torch.where(x > 9, out, out * 1.0)
    return out


@pytest.mark.parametrize("route", [skipping, guarded, querying, counting, numbered, inverted])
def test_a_guard_against_empty_rows_is_dropped(route: Route) -> None:
    """An expert without rows has no gradient in PyTorch, and a gradient of 0 here."""
    torch.manual_seed(0)
    module = Mixture(route)
    alike = torch.randn(1, 6).expand(7, 6)

    for x in (torch.randn(7, 6), alike.contiguous()):
        compile(module, (x,), check=True)


class Spline(nn.Module):
    """A monotone spline within [-1, 1] and the identity outside, as in the flows of VITS."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes = nn.Linear(4, 3 * 5 - 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        widths, heights, slopes = self.shapes(x).split([5, 5, 4], -1)
        t = x[..., 0]
        inside = (t >= -1) & (t <= 1)
        outside = ~inside
        y, log_slope = torch.zeros_like(t), torch.zeros_like(t)
        slopes = functional.pad(slopes, (1, 1))
        slopes[..., 0] = slopes[..., -1] = 0.5
        y[outside], log_slope[outside] = t[outside], 0
        if torch.any(inside):
            shapes = widths[inside, :], heights[inside, :], slopes[inside, :]
            y[inside], log_slope[inside] = self.within(t[inside], *shapes)
        return (y.square() - log_slope).mean()

    def within(
        self, t: torch.Tensor, widths: torch.Tensor, heights: torch.Tensor, slopes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.min(t) < -1 or torch.max(t) > 1:
            raise ValueError("only within [-1, 1]")
        left, low = self.borders(widths), self.borders(heights)
        left[..., -1] += 1e-6
        place = (torch.sum(t[..., None] >= left, -1) - 1)[..., None]
        wide, high, first, last = (
            part.gather(-1, place)[..., 0]
            for part in (left.diff(), low.diff(), slopes[..., :-1].exp(), slopes[..., 1:].exp())
        )
        along = (t - left.gather(-1, place)[..., 0]) / wide
        bent = along * (1 - along)
        below = high / wide + (first + last - 2 * high / wide) * bent
        above = high * (high / wide * along.square() + first * bent)
        return low.gather(-1, place)[..., 0] + above / below, below.log()

    def borders(self, sizes: torch.Tensor) -> torch.Tensor:
        ends = functional.pad(sizes.softmax(-1).cumsum(-1), (1, 0)) * 2 - 1
        ends[..., 0] = -1.0
        ends[..., -1] = 1.0
        return ends


def test_a_spline_of_rows_inside_an_interval_trains() -> None:
    module, x = Spline(), torch.randn(6, 3, 4)

    compile(module, (x,), check=True)
    graph = from_torch(module, (x,))

    for other in (x * 0.1, x.abs() + 2):
        (found,) = run(graph, {"x": other.numpy()}).values()
        np.testing.assert_allclose(found, module(other).detach().numpy(), rtol=1e-5)


GUARDS = {
    "another result": lambda m, x, y: x.sum() if x[y > 0].numel() else x.sum() + 5,
    "a mean of empty rows": lambda m, x, y: x[y > 0].mean() if x[y > 0].size(0) else x.sum() * 0,
    "a count of empty rows": lambda m, x, y: x[y > 0].sum() / max(x[y > 0].shape[0], 1),
    "another change": lambda m, x, y: (x if x[y > 9].shape[0] == 0 else x * 2).sum(),
    "another result of any": lambda m, x, y: x.sum() if (y > 0).any() else x.sum() + 5,
    "a mean of a mask": lambda m, x, y: (
        (x[:, 0] * (y > 0)).sum() / (y > 0).sum() if (y > 0).sum() > 0 else x.sum() * 0
    ),
    "a number of rows": lambda m, x, y: x.sum() / n if (n := int((y > 0).sum())) else x.sum() * 0,
    "two numbers of rows": lambda m, x, y: (
        x.sum() if int((y == 1).sum()) == int((y == 2).sum()) else x.sum() * 2
    ),
    "all rows": lambda m, x, y: (x * 2 if (x[:, 0] > 9).all() else x).sum(),
    "a counted class": lambda m, x, y: (
        x.sum() * (1 if torch.bincount(y, minlength=3)[1] > 0 else 2)
    ),
    "a length elsewhere": lambda m, x, y: (x if len(x[y > 9]) == 0 else x * 2).sum(),
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_with_other_effects_is_refused(name: str) -> None:
    x, y = torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    module = Guarded(GUARDS[name])

    words = r"rows are selected|values in a tensor|number of Python"
    with pytest.raises(ImportModelError, match=words):
        from_torch(module, (x, y))


def test_a_guard_on_other_counts_than_zero_is_refused() -> None:
    """Whether two rows, or exactly n rows, are selected depends on the data."""
    for function in (
        lambda m, x, y: x[y > 0].sum() if (y > 0).sum() > 1 else x.sum() * 0,
        lambda m, x, y: x.sum() if (y > 0).sum() == 3 else x.sum() * 0,
        lambda m, x, y: x[y > 0].sum() if (y > 0).any() and (x > 0).sum() != 5 else x.sum() * 0,
    ):
        with pytest.raises(ImportModelError, match="decides by the values in a tensor"):
            from_torch(Guarded(function), (torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0])))


def test_bincount_needs_the_number_of_classes() -> None:
    def counted(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.sum(1)[:3] * torch.bincount(y, minlength=3)).sum()

    x, y = torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    compile(Guarded(counted), (x, y), check=True)

    with pytest.raises(ImportModelError, match="number of classes as minlength"):
        from_torch(Guarded(lambda m, x, y: x.sum() * torch.bincount(y)[0]), (x, y))


class Guarded(nn.Module):
    """A loss of a layer's output rows."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.function(self, self.head(x), y)


class Images(nn.Module):
    """Replaces image tokens by image features, as PaliGemma does."""

    def __init__(self, *, checked: bool) -> None:
        super().__init__()
        self.embed, self.project, self.checked = nn.Embedding(10, 6), nn.Linear(6, 6), checked

    def forward(self, ids: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        words, features = self.embed(ids), self.project(images)
        mask = (ids == 9).unsqueeze(-1).expand_as(words)
        if words[mask].numel() != features.numel():
            if self.checked:
                raise ValueError("as many tokens as features are needed")
            return words.sum()
        return words.masked_scatter(mask, features).square().sum()


def test_a_check_of_the_number_of_selected_rows_is_dropped() -> None:
    inputs = (torch.tensor([[1, 9, 9, 3], [9, 2, 9, 4]]), torch.randn(4, 6))

    compile(Images(checked=True), inputs, check=True)
    with pytest.raises(ImportModelError, match="decides by how many rows are selected"):
        from_torch(Images(checked=False), inputs)


def asserts(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    assert (y != 0).sum().max().item() <= 7
    assert torch.all(y >= 0).item()
    return x.square().sum()


def raises(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.float().mean().item() > 1.5:
        raise ValueError("classes are too high")
    return x.square().sum()


def branches(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.square().sum() if y.max().item() > 1 else x.sum()


def test_a_check_of_an_element_is_dropped() -> None:
    inputs = (torch.randn(7, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0]))

    for check in (asserts, raises):
        compile(Guarded(check), inputs, check=True)
    with pytest.raises(ImportModelError, match="decides by the values in a tensor"):
        from_torch(Guarded(branches), inputs)
    with pytest.raises(ImportModelError, match=r"values in a tensor|does not run"):
        from_torch(Guarded(raises), (inputs[0], inputs[1] + 2))  # the examples fail the check
