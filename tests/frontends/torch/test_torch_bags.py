"""Embedding bags: sums, means, maxima and gradients compared with PyTorch's, also in C."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from pockengine.api import compile
from pockengine.tests.frontends.torch.gradients import check_function

TABLE = (7, 3)

LIST = torch.tensor([1, 2, 3, 2, 5, 6, 0, 2])

UNEQUAL = torch.tensor([0, 2, 2, 3])

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    f"{name} of {mode}": lambda x, how=how, mode=mode: functional.embedding_bag(
        weight=x, mode=mode, **how
    )
    for mode in ("sum", "mean", "max")
    for name, how in {
        "rows": {"input": LIST.reshape(2, 4)},
        "a list": {"input": LIST, "offsets": UNEQUAL},
        "a list to its end": {
            "input": LIST,
            "offsets": torch.tensor([0, 5, 8]),
            "include_last_offset": True,
        },
        "a list without padding": {"input": LIST, "offsets": UNEQUAL, "padding_idx": 2},
        "one bag": {"input": LIST, "offsets": torch.tensor([0])},
    }.items()
} | {
    "weighted": lambda x: functional.embedding_bag(
        LIST, x, UNEQUAL, mode="sum", per_sample_weights=x.flatten()[:8], padding_idx=5
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bags_and_their_gradients_equal_pytorch(name: str) -> None:
    check_function(FUNCTIONS[name], TABLE)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_input_indices_train_in_c(mode: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(*TABLE, mode=mode)

        def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.bag(words, offsets).square().sum()

    model = Net()
    reference = copy.deepcopy(model)
    compiled = compile(model, (LIST, UNEQUAL))
    with compiled.session() as session:
        for offsets in (UNEQUAL, torch.tensor([0, 1, 6, 6])):
            loss = reference(LIST, offsets)
            loss.backward()
            inputs = {"words": LIST.numpy(), "offsets": offsets.numpy()}
            found = session.train_step(inputs, lr=0.05)["loss"]
            assert float(found) == pytest.approx(float(loss.detach()), rel=1e-5)
            torch.optim.SGD(reference.parameters(), 0.05).step()
            reference.zero_grad()
        state = compiled.state_dict(session)
    torch.testing.assert_close(state["bag.weight"], reference.bag.weight.detach())
