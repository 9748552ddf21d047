"""Modules whose parameters have shapes and no numbers: those on PyTorch's device `meta`.

Models of any size can be traced this way; weights are attached to the graph afterwards
(`ir/attach.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def standing_in(module: nn.Module) -> Iterator[None]:
    """Put parameters that nothing writes in place of those on `meta`, for a trace.

    Tracing knows inputs to lie on the CPU, and wants all parameters there. The memory of these is
    reserved and never touched.
    """
    places = [
        (part, name, held)
        for part in module.modules()
        for name, held in part._parameters.items()
        if held is not None and held.is_meta
    ]
    made: dict[int, nn.Parameter] = {}
    for part, name, held in places:
        if id(held) not in made:
            empty = torch.empty_like(held, device="cpu")
            made[id(held)] = nn.Parameter(empty, requires_grad=held.requires_grad)
        part._parameters[name] = made[id(held)]
    try:
        yield
    finally:
        for part, name, held in places:
            part._parameters[name] = held
