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
    """Replace parameters on `meta` by ones without content, for a trace.

    Tracing assumes inputs on the CPU, and requires all parameters there. The memory of these is
    reserved and never touched.
    """
    places = [
        (part, name, tensor)
        for part in module.modules()
        for name, tensor in part._parameters.items()
        if tensor is not None and tensor.is_meta
    ]
    made: dict[int, nn.Parameter] = {}
    for part, name, tensor in places:
        if id(tensor) not in made:
            empty = torch.empty_like(tensor, device="cpu")
            made[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad)
        part._parameters[name] = made[id(tensor)]
    try:
        yield
    finally:
        for part, name, tensor in places:
            part._parameters[name] = tensor
