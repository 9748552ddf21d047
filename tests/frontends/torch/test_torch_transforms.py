"""Function transforms within a module, and packed sequences."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import check_forward, check_training

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
Applied = Callable[[nn.Module, torch.Tensor], Any]


class Applying(nn.Module):
    """A net, and a function of the net and its input."""

    def __init__(self, function: Applied) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.net, x)


def rows(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(net)(x)


def columns(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda v, w: net(w) * v.sum(), in_dims=(-1, None), out_dims=1)(x, x)


def nested(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    def pair(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (net(one) * other).sum()

    return torch.vmap(torch.vmap(pair, (None, 0)), (0, None))(x, x).tanh()


def several(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found = torch.vmap(
        lambda v: {"net": net(v["x"]), "mean": v["x"].mean()},
        out_dims={"net": 1, "mean": 0},
        chunk_size=2,
    )({"x": x})
    return found["net"].t() * found["mean"][:, None]


@pytest.mark.parametrize("function", [rows, columns, nested, several])
def test_vmap_calls_the_function_per_row(function: Applied) -> None:
    batches = [(torch.randn(4, 6), torch.tensor([0, 2, 1, 3])) for _ in range(2)]
    if function is columns:
        check_forward(Applying(function), X)
    else:
        check_training(Applying(function), batches)


def test_vmap_of_too_many_rows_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"torch\.func\.vmap .*test_torch_tr.*300 times"):
        from_torch(Applying(rows), (torch.randn(300, 6),))


class Packed(nn.Module):
    """A recurrent layer over sequences of known lengths; returns outputs and last states."""

    def __init__(self, kind: type[nn.RNNBase], lengths: list[int], **settings: Any) -> None:
        super().__init__()
        self.body = kind(6, 5, **settings)
        self.lengths = lengths

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.body.batch_first
        packed = pack_padded_sequence(x, self.lengths, first, enforce_sorted=False)
        outputs, last = self.body(packed)
        padded, lengths = pad_packed_sequence(outputs, first, -2.0, 5)
        last = torch.cat(last, -1) if isinstance(last, tuple) else last
        mean = padded.sum(1 if first else 0) / lengths[:, None]
        return torch.cat([mean, last.transpose(0, 1).flatten(1)], -1)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (nn.LSTM, {"batch_first": True}),
        (nn.LSTM, {"bidirectional": True, "num_layers": 2, "proj_size": 3}),
        (nn.GRU, {"bidirectional": True}),
        (nn.RNN, {"nonlinearity": "relu", "num_layers": 2, "bias": False}),
    ],
)
def test_packed_sequences_of_known_lengths_train(
    kind: type[nn.RNNBase], settings: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    shape = (4, 5, 6) if settings.get("batch_first") else (5, 4, 6)
    batches = [(torch.randn(shape), torch.tensor([0, 2, 1, 3])) for _ in range(2)]
    check_training(Packed(kind, [2, 4, 1, 4], **settings), batches)


def test_packed_sequences_with_input_lengths_are_refused() -> None:
    class ByData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.packed = Packed(nn.GRU, [])

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            self.packed.lengths = lengths
            return self.packed(x)

    with pytest.raises(ImportModelError, match=r"pack_padded_sequence .*depend on the data.*mask"):
        from_torch(ByData(), (torch.randn(5, 4, 6), torch.tensor([2, 4, 1, 4])))


def test_failure_on_the_examples_is_reported_before_a_branch() -> None:
    def failing(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 1e9:
            raise ValueError("too large")
        raise KeyError("nothing")

    with pytest.raises(ImportModelError, match=r"does not run on example inputs.*nothing"):
        from_torch(Applying(failing), (X,))
