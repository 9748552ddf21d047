"""The numbers at which operators are most likely to differ, as tensors of PyTorch."""

import itertools

import torch

from pockengine.tests.frontends.edges.hard_numbers import EDGES, LINES, PAIRED, WHOLE


def edges() -> torch.Tensor:
    """Return EDGES as a vector."""
    return torch.tensor(EDGES)


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two vectors with every pair of PAIRED."""
    grid = list(itertools.product(PAIRED, PAIRED))
    return torch.tensor([a for a, _ in grid]), torch.tensor([b for _, b in grid])


def whole_pairs(*, zeros: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two vectors of int64 with every pair of WHOLE; `zeros` among the second too."""
    grid = [(a, b) for a, b in itertools.product(WHOLE, WHOLE) if zeros or b]
    return torch.tensor([a for a, _ in grid]), torch.tensor([b for _, b in grid])


def masks() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two boolean vectors with all four pairs."""
    return torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True])


def lines() -> torch.Tensor:
    """Return rows that reductions and sorting find hard: ties, constants, zeros, limits."""
    return torch.tensor(LINES)
