"""The gradient of an element that equals its bound, as in the installed PyTorch."""

import functools
from collections.abc import Callable

import torch

BOUNDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "number": lambda x: x.clamp(min=1.0),
    "tensor": lambda x: x.clamp(min=torch.ones(1)),
    "fmax": lambda x: torch.fmax(x, torch.ones(1)),
}
"""Kinds of bounds; each limits x from below by 1."""


@functools.cache
def share_of_tie(kind: str) -> float:
    """Return the share that the element has of the gradient of a tie with its bound.

    It is 1; since PyTorch 2.14 it is 0 with a number, and 0.5 with a tensor, as of `maximum`.
    """
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.ones(1, requires_grad=True)
        (slope,) = torch.autograd.grad(BOUNDS[kind](x).sum(), x)
    return float(slope)
