"""Masked selections from which a model reads one row per example."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.api import compile
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import arrays_of, check_training

END = 2
TEXT = torch.tensor([[5, END, 7, END, 4], [END, 3, 3, 6, END], [9, 8, END, END, 1]])
UNEQUAL = torch.tensor([[5, END, 7, END, 4], [END, 3, 3, 6, 3], [9, END, END, END, 1]])
"""Six marks in total, as in two per row, but unequally distributed."""

Pick = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Reader(nn.Module):
    """Classifies a text by the word at one of its marks."""

    def __init__(self, pick: Pick) -> None:
        super().__init__()
        self.words, self.head, self.pick = nn.Embedding(10, 6), nn.Linear(6, 3), pick

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.pick(self.words(text), text == END))


def last(words: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    return words[marks, :].view(words.size(0), -1, words.size(-1))[:, -1, :]


PICKS: dict[str, Pick] = {
    "last": last,
    "first": lambda x, marks: x[marks].reshape(3, -1, 6)[:, 0],
    "second": lambda x, marks: x[marks].reshape(3, -1, 6).select(1, 1),
    "last but one": lambda x, marks: x[marks].view(3, -1, 6)[:, -2],
    "marks in a plane": lambda x, marks: (
        x[:, None].expand(-1, 2, -1, -1)[marks[:, None].expand(-1, 2, -1)].view(3, -1, 6)[:, -3]
    ),
}


@pytest.mark.parametrize("name", PICKS)
def test_word_at_a_mark_trains_as_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    texts = [TEXT, TEXT.flip(0), TEXT.flip(1)]

    check_training(Reader(PICKS[name]), [(text, torch.tensor([0, 2, 1])) for text in texts])


@pytest.mark.parametrize("text", [UNEQUAL, TEXT.clamp(max=1)])
def test_unequal_or_missing_marks_make_the_result_nan(text: torch.Tensor) -> None:
    model = Reader(last)
    graph = from_torch(model, (TEXT,))

    found = run(graph, arrays_of(graph, (text,)))["output"]
    balanced = run(graph, arrays_of(graph, (TEXT,)))["output"]

    assert np.isnan(found).all()
    np.testing.assert_allclose(balanced, model(TEXT).detach().numpy(), rtol=1e-5)


def test_generated_code_picks_the_same_rows_and_returns_nan() -> None:
    torch.manual_seed(0)
    model, target = Reader(last), torch.tensor([0, 2, 1])
    expected = nn.functional.cross_entropy(model(TEXT), target).item()
    with compile(model, (TEXT,), loss="cross_entropy").session() as session:
        step = {"text": TEXT.numpy(), "target": target.numpy()}

        assert float(session.train_step(step, lr=0.0)["loss"]) == pytest.approx(expected, rel=1e-5)
        assert math.isnan(session.train_step({**step, "text": UNEQUAL.numpy()}, lr=0.0)["loss"])


@pytest.mark.parametrize(
    "pick",
    [
        lambda x, marks: x[marks].amax(0),
        lambda x, marks: x[marks].view(3, -1, 6).mean(1),
        lambda x, marks: x[marks].view(-1, 3, 6)[-1],
    ],
)
def test_other_uses_of_marked_rows_are_refused_with_their_line(pick: Pick) -> None:
    with pytest.raises(ImportModelError) as caught:
        from_torch(Reader(pick), (TEXT,))

    for words in (
        "aten.index.Tensor",
        "depends on the data (`",
        "self.pick(",
        "test_torch_marks.py",
    ):
        assert words in str(caught.value)
    assert "by torch.where" in str(caught.value)
