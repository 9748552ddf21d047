"""Data-dependent row selections: mixtures of experts, masked losses, matched boxes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pockengine.api import compile
from pockengine.compiler.autodiff import backward
from pockengine.compiler.ir import Builder
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, arrays_of, check_gradients
from pockengine.tests.frontends.torch.mixture import EXPERTS, Mixture, Route

Loss = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
Writer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def by_index_add(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        row, place = torch.where(chosen == e)
        out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
    return out


def by_one_hot(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
    for e, expert in enumerate(experts):
        place, row = torch.where(mask[e])
        now = expert(x[None, row].reshape(-1, 6)) * weights[row, place, None]
        out.index_add_(0, row, now)
    return out


def by_adding_in_place(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        row, place = torch.where(chosen == e)
        out[row] += weights[row, place].unsqueeze(1) * expert(x[row])
    return out


def by_nonzero(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        places = (chosen == e).nonzero()
        row = places[:, 0]
        now = expert(x.index_select(0, row)) * weights[places[:, 0], places[:, 1]][:, None]
        out = out.index_put((row,), now, accumulate=True)
    return out


def by_mask(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        mask = chosen[:, 0] == e
        out[mask] = expert(x[mask]) * weights[mask][:, :1]
    return out


def by_copy(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = x * 2
    for e, expert in enumerate(experts):
        row = (chosen[:, 1] == e).nonzero().squeeze(-1)
        out.index_copy_(0, row, expert(x[row]).tanh())
    return out


def by_place(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = x * 1
    for e, expert in enumerate(experts):
        (row,) = torch.nonzero(chosen[:, 0] == e, as_tuple=True)
        out[row] = F.layer_norm(expert(x[row]), (6,))
    return out


def by_scatter(
    experts: nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        row = (chosen == e).any(-1).nonzero().view(-1)
        out = out.scatter_add(0, row[:, None].expand(-1, 6), expert(x[row]))
    return out


ROUTES = [
    by_index_add, by_one_hot, by_adding_in_place, by_nonzero, by_mask, by_copy, by_place, by_scatter
]  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_experts_train_as_in_pytorch(route: Route) -> None:
    torch.manual_seed(0)
    module = Mixture(route)
    alike = torch.randn(1, 6).expand(7, 6)  # all rows go to the same two experts

    check_gradients(module, (torch.randn(7, 6),), (alike.contiguous(),), (torch.randn(7, 6) * 3,))


def overlap(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a loss of boxes as in YOLO: CIoU, whose shape weight has no gradient."""
    box, other = m.head(x)[y > 0], x[y > 0]
    high = torch.min(box[:, 2:4], other[:, 2:4])
    low = torch.max(box[:, :2], other[:, :2])
    share = (high - low).clamp(0).prod(1).sigmoid()
    shape = (box[:, 4].atan() - other[:, 4].atan()).square()
    with torch.no_grad():
        weight = shape / (shape - share + 1.1)
        mean = weight.mean()
    kinds = F.binary_cross_entropy_with_logits(box, F.one_hot(y[y > 0], 5).float())
    return kinds + (1 - share + weight * shape).mean() + mean * F.logsigmoid(box).norm(dim=1).sum()


def ctc(m: Any, x: torch.Tensor, labels: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the CTC loss of concatenated labels."""
    sounds = m.head(x).repeat_interleave(3, 1).log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(sounds, labels, torch.tensor([12, 11]), lengths)


def others(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Return each row's similarity to the others, as in contrastive losses."""
    alike = m.head(x[0])[:, :4] @ x[0, :, :4].T
    mask = ~torch.eye(4, dtype=torch.bool)
    return alike[mask] + torch.masked_select(alike.T, mask) * alike[None][..., mask][0]


class Masked(nn.Module):
    """A loss of the rows that have a target."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(5, 6), nn.Linear(6, 5)
        self.loss = loss

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.loss(self, x, labels)


LOSSES: dict[str, Loss] = {
    "masked language": lambda m, x, y: F.cross_entropy(m.head(x[y >= 0]), y[y >= 0]),
    "smoothed": lambda m, x, y: F.cross_entropy(
        m.head(x)[y != -100], y[y != -100], label_smoothing=0.1
    ),
    "added up": lambda m, x, y: F.cross_entropy(m.head(x[y > 0]), y[y > 0], reduction="sum"),
    "each": lambda m, x, y: F.cross_entropy(m.head(x[y > 0]), y[y > 0], reduction="none").sum(),
    "likelihood": lambda m, x, y: F.nll_loss(m.head(x[y > 0]).log_softmax(-1), y[y > 0]),
    "mean": lambda m, x, y: m.head(x)[y > 0].mean() + m.head(x)[y > 0].mean(0).square().sum(),
    "mean with keepdim": lambda m, x, y: m.head(x)[y > 0].mean((0, 1), keepdim=True).sum(),
    "other dimensions": lambda m, x, y: m.head(x[y > 0]).softmax(-1).amax(1).square().sum(),
    "mse": lambda m, x, y: F.mse_loss(m.head(x)[y > 0], x[:, :, 1:][y > 0]),
    "smooth l1": lambda m, x, y: F.smooth_l1_loss(
        m.head(x)[y > 0], x[:, :, 1:][y > 0], reduction="sum", beta=0.5
    ),
    "huber": lambda m, x, y: F.huber_loss(m.head(x)[y > 0], x[:, :, 1:][y > 0], delta=0.3),
    "binary": lambda m, x, y: F.binary_cross_entropy_with_logits(
        m.head(x)[y > 0], x[:, :, 1:].sigmoid()[y > 0], pos_weight=torch.arange(5.0) + 1
    ),
    "selected elements": lambda m, x, y: torch.masked_select(m.head(x)[:, :, 0] ** 2, y > 0).mean(),
    "words": lambda m, x, y: m.head(m.words(y[y >= 0])).square().mean(),
    "words and rows": lambda m, x, y: (m.words(y[y >= 0]) * x[y >= 0]).tanh().sum(),
    "picked": lambda m, x, y: (
        m.head(x[y >= 0]).log_softmax(-1).gather(1, y[y >= 0].unsqueeze(1)).sum()
    ),
    "matched": lambda m, x, y: (
        F.l1_loss(
            m.head(x)[(y > 0).nonzero(as_tuple=True)],
            x[:, :, 1:][(y > 0).nonzero(as_tuple=True)],
            reduction="none",
        ).sum()
        / (y > 0).sum().clamp(min=1)
    ),
    "divided by the count": lambda m, x, y: m.head(x[y > 0]).square().sum() / x[y > 0].shape[0],
    "concatenated rows": lambda m, x, y: (
        torch.cat([m.head(x[y > 0]), x[y > 0]], -1).view(-1, 11).T.tanh().sum()
    ),
    "logarithms": lambda m, x, y: m.head(x)[m.head(x) > 0.1].log().sum(),
    "quotients": lambda m, x, y: (1 / m.head(x)[y > 0].square()).sqrt().sum(),
    "products": lambda m, x, y: (m.head(x[y > 0]) @ m.words.weight).square().sum(),
    "constant rows": lambda m, x, y: (
        x.index_put(((y > 0).nonzero(as_tuple=True)[0],), torch.tensor(0.5)) * m.words.weight[0]
    ).sum(),
    "inner dimensions": lambda m, x, y: (
        m.head(x)[:, (y > 0)[0]].sum() + m.head(x)[0][y[0] > 0, 1].sum()
    ),
    "rows of equal count": lambda m, x, y: (
        (m.head(x[y > 0]) * x.new_full((x[y > 0].shape[0], 5), 0.5)).sum()
        + (m.head.bias.expand(x[y > 0].shape[0], -1) + x[y > 0][:, 1:]).sum()
    ),
    "boxes": overlap,
    "ctc": lambda m, x, y: ctc(m, x, y.masked_select(y > 0), (y > 0).sum(-1)),
    "ctc of cast labels": lambda m, x, y: ctc(m, x, y[y > 0].int(), (y > 0).sum(dim=1).int()),
    "ctc of one row": lambda m, x, y: ctc(
        m, x, y.flatten()[y.flatten() > 0], (y.flatten() > 0).view(2, -1).float().sum(1).long()
    ),
    "a constant mask": lambda m, x, y: others(m, x).view(4, 3).logsumexp(1).sum(),
    "a mask of numbers": lambda m, x, y: m.head(x[torch.nonzero(x[:, 0, 0].relu())[:, 0]]).sum(),
}


def expected(first: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 5, (2, 4))
    labels[0, first:] = -100
    return torch.randn(2, 4, 6), labels


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_selected_rows_are_as_in_pytorch(name: str) -> None:
    torch.manual_seed(1)

    check_gradients(Masked(LOSSES[name]), expected(1), expected(3))


@pytest.mark.parametrize("name", ["added up", "words", "words and rows", "logarithms", "picked"])
def test_nothing_selected_gives_no_gradient(name: str) -> None:
    torch.manual_seed(2)
    module = Masked(LOSSES[name])
    x, labels = expected()
    if name == "logarithms":
        nn.init.zeros_(module.head.weight)
        nn.init.zeros_(module.head.bias)
    graph = from_torch(module, (x, labels))
    g = Builder(graph)
    weight = graph.params[[name for name in graph.params if "weight" in name][-1]].value
    g.output("gradient", backward(g, graph.outputs["loss"], {weight: None})[weight])

    found = run(graph, arrays_of(graph, (x, torch.full_like(labels, -100))))

    assert name == "words" or found["loss"] == 0  # the mean of no rows is NaN
    assert name == "words" or (found["gradient"] == 0).all()


def test_unselected_rows_may_be_nan() -> None:
    module = nn.Linear(3, 2)
    x = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0], [4.0, 1.0, 2.0]])

    class Roots(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x) * x[:, :1]
            return (1 / y[x[:, 0] > 0]).abs().sqrt().sum()

    check_gradients(Roots(), (x,), (x.flip(0),))


def by_add(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.index_add(0, rows, x[rows].tanh())


def by_put(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).index_put((rows,), x[rows].exp())


def by_putting_back(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = x * 2
    out[rows] = x[rows].exp()
    return out


@pytest.mark.parametrize("writer", [by_add, by_put, by_putting_back])
def test_a_tensor_written_by_rows_can_be_written_again(writer: Writer) -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.randn(5, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = writer(x + self.shift, torch.where(x[:, 0] > 0)[0])
            out[0] += x[1]
            out[:, 1] = out[:, 0]
            view = out[2:]
            view.mul_(1.5)
            return (out * out * x.cos()).sum()

    torch.manual_seed(4)

    check_gradients(Written(), (torch.randn(5, 3),), (torch.randn(5, 3),))


REFUSED: dict[str, tuple[Loss, str]] = {
    "cumsum": (lambda m, x, y: m.head(x[y > 0]).cumsum(0).sum(), "goes across rows"),
    "sort": (lambda m, x, y: m.head(x[y > 0]).sort(0)[0][0].sum(), "goes across rows"),
    "norm": (lambda m, x, y: F.batch_norm(m.head(x[y > 0]), None, None, training=True).sum(), ""),
    "gram": (lambda m, x, y: (x[y > 0].T @ x[y > 0]).sum(), "goes across rows"),
    "computed indices": (
        lambda m, x, y: x[0][(y[0] > 0).nonzero().squeeze(1) - 1].sum(), "calculated of places"
    ),
    "two masks": (lambda m, x, y: (x[y > 0] * x[y > 1]).sum(), ""),
    "a count": (lambda m, x, y: x[y > 0].sum() * max(x[y > 0].shape[0] - 1, 1), "how many rows"),
    "a count as a number": (
        lambda m, x, y: (x[0] * torch.full((6,), x[y > 0].shape[0])).sum(), "how many rows"
    ),
    "changed indices": (
        lambda m, x, y: x[0, (y[0] > 0).nonzero().squeeze(1).sub_(1)].sum(), "writes to places"
    ),
    "rows of rows": (lambda m, x, y: x[y > 0][x[y > 0][:, 0] > 0].sum(), ""),
    "a table of pairs": (lambda m, x, y: (x[y > 0][:, None] - x[y > 0]).abs().sum(), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_reads_across_rows_are_refused_with_their_line(name: str) -> None:
    loss, words = REFUSED[name]

    with pytest.raises(ImportModelError, match=f"test_torch_selected.py:.*{words}"):
        from_torch(Masked(loss), expected(2))


def test_a_mask_that_changes_is_refused() -> None:
    def loss(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mask = y > 0
        before = m.head(x[mask]).sum()
        mask[0] = True
        return before * 2 + m.head(x[mask]).sum()

    with pytest.raises(ImportModelError, match="a mask that is written to"):
        from_torch(Masked(loss), expected(2))


def test_selected_rows_are_refused_as_an_output() -> None:
    with pytest.raises(ImportModelError, match="what forward returns depends on what is selected"):
        from_torch(Function(lambda x: x[x[:, 0] > 0]), (torch.randn(4, 2),))


def test_a_branch_on_an_empty_selection_is_refused_with_the_rewrite(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def loss(m: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = x[y > 0]
        if len(rows) == 0:
            return m.head(x).sum()
        return m.head(rows).sum()

    with pytest.raises(ImportModelError, match=r"len\(rows\) == 0.*leave the test out"):
        from_torch(Masked(loss), expected(2))
    assert capfd.readouterr().err == ""  # PyTorch would print its graph there


@pytest.mark.parametrize("name", ["masked language", "words and rows"])
def test_masked_words_train_in_c(name: str) -> None:
    torch.manual_seed(3)
    module = Masked(LOSSES[name])
    x, labels = expected(2)
    reference = copy.deepcopy(module)
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)

    with compile(module, (x, labels), optimizer="sgd").session() as session:
        batch = {"x": x.numpy(), "labels": labels.numpy()}
        for _ in range(3):
            optimizer.zero_grad()
            loss = reference(x, labels)
            loss.backward()
            optimizer.step()
            found = session.train_step(batch, lr=0.1)["loss"]
            assert float(found) == pytest.approx(loss.item(), rel=1e-4)


class Attending(nn.Module):
    """Attention within each of the sequences that a mask selects; a scalar loss."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        rows = x[chosen]
        q, k, v = (part(rows).view(-1, 5, 2, 4).transpose(1, 2) for part in self.parts)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum()


def test_selected_sequences_attend_to_themselves() -> None:
    torch.manual_seed(0)
    chosen = torch.tensor([True, False, True, True])

    compile(Attending(), (torch.randn(4, 5, 8), chosen), check=True)
