"""Modules of 16 bits and autocast, computed in float32 throughout.

In a trace and a reference, bfloat16 and float16 parameters, buffers and inputs are float32, without
casts to 16 bits. A float32 module that casts internally keeps its roundings (`halves.py`).
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.replaced import replaced

HALVES = (torch.bfloat16, torch.float16)
CASTS = {torch.Tensor.bfloat16, torch.Tensor.half}


@contextmanager
def in_floats(module: nn.Module) -> Iterator[dict[str, None]]:
    """Convert a module to float32 temporarily, without autocast; report the change."""
    changes: dict[str, None] = {}
    with ExitStack() as stack:
        if kinds := _put(module, stack):
            changes[f"its parameters of {' and '.join(kinds)} are widened"] = None
            stack.enter_context(_NoCasts())
        if not isinstance(module, torch.fx.GraphModule):  # an exported one checks its own types
            stack.enter_context(_no_autocast(changes))
        yield changes


def warn_of_floats(module: nn.Module, changes: dict[str, None]) -> None:
    """Warn that a module is computed in another type than its own."""
    if changes:
        warnings.warn(
            f"{type(module).__name__} is computed and trained in float32: {', '.join(changes)}; "
            "bf16=True rounds the operands of large products",
            stacklevel=3,
        )


def as_float(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of 16 bits in float32."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def _put(module: nn.Module, stack: ExitStack) -> list[str]:
    """Replace 16-bit tensors by float32 until the stack ends; return their types."""
    made: dict[int, torch.Tensor] = {}
    kinds: dict[str, None] = {}
    owners = [owner for part in module.modules() for owner in (part._parameters, part._buffers)]
    for owner in owners:
        for name, tensor in list(owner.items()):
            if tensor is None or tensor.dtype not in HALVES:
                continue
            kinds[str(tensor.dtype).removeprefix("torch.")] = None
            wide = made.setdefault(id(tensor), _widened(tensor))
            stack.callback(owner.__setitem__, name, tensor)
            owner[name] = wide
    return list(kinds)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.detach().float()
    return nn.Parameter(wide, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else wide


class _NoCasts(TorchFunctionMode):
    """Computes in float32 if the result would have 16 bits."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, with float32 for a 16-bit type."""
        func = torch.Tensor.float if func in CASTS else func
        args, kwargs = pytree.tree_map(_wide_type, (args, kwargs or {}))
        return theirs(func, *args, **kwargs)


def _wide_type(argument: Any) -> Any:
    is_half = isinstance(argument, torch.dtype) and argument in HALVES
    return torch.float32 if is_half else argument


@contextmanager
def _no_autocast(changes: dict[str, None]) -> Iterator[None]:
    """Make `with torch.autocast(...)` a no-op."""

    def enter(block: torch.autocast) -> torch.autocast:
        if block._enabled:
            changes["its autocast is left out"] = None
        return block

    with (
        replaced(torch.autocast, "__enter__", enter),
        replaced(torch.autocast, "__exit__", lambda *_: None),
    ):
        yield
