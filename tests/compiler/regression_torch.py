"""The same regression trained with a PyTorch optimizer."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from pockengine.tests.compiler.regression import STEPS, data, rate, regression

Params = list[torch.Tensor]


class Stepping(Protocol):
    """Interface of an optimizer in the training loop."""

    param_groups: list[dict[str, Any]]

    def step(self) -> object:
        """Update the parameters."""

    def zero_grad(self) -> object:
        """Reset their gradients."""


def set_rate(optimizer: Stepping, step: int) -> None:
    """Set this step's rate in each group."""
    for group in optimizer.param_groups:
        group["lr"] = float(rate(step))


def theirs(
    make: Callable[[Params], Stepping],
    clip: Callable[[Params], object] = lambda params: None,
    micro_batches: int = 1,
) -> dict[str, np.ndarray]:
    graph = regression()
    w = torch.from_numpy(graph.params["w"].data.T.copy()).requires_grad_()
    b = torch.from_numpy(graph.params["b"].data.copy()).requires_grad_()
    optimizer = make([w, b])
    for step in range(STEPS):
        x, y = (torch.from_numpy(array) for array in data(step).values())
        loss = torch.nn.functional.mse_loss(torch.nn.functional.linear(x, w, b), y)
        (loss / micro_batches).backward()
        if (step + 1) % micro_batches == 0:
            clip([w, b])
            set_rate(optimizer, step // micro_batches)
            optimizer.step()
            optimizer.zero_grad()
    return {"w": w.detach().numpy().T, "b": b.detach().numpy()}
