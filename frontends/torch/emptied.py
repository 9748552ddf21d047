"""Whether a module that asks if any rows are selected only skips work that comes to nothing.

Experts of a mixture are often guarded by `if rows.numel() == 0: continue`. Where no row is
selected, sums over them are 0 and writes of them change nothing, so the guard does not matter,
unless one side of it does something else. The module is asked: each selection in turn is made
empty, and the guards after it are once told the truth and once that there are rows.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pockengine.frontends.torch.decisions import copied_module

BY_MASK = {torch.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere}
AT_MASK = {torch.masked_select, torch.Tensor.masked_select, torch.Tensor.__getitem__}
SIZES = {torch.numel, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.size}
SIZES |= {torch.Tensor.shape.__get__}
MOST_SELECTIONS = 64
"""Selections that are made empty, each by two runs of the module."""


class Some(int):
    """A size of 0 that says, where it is compared, that it is none."""

    def __eq__(self, other: object) -> bool:
        return other == 1

    def __ne__(self, other: object) -> bool:
        return other != 1

    def __lt__(self, other: Any) -> bool:
        return int(other) > 1

    def __le__(self, other: Any) -> bool:
        return int(other) >= 1

    def __gt__(self, other: Any) -> bool:
        return int(other) < 1

    def __ge__(self, other: Any) -> bool:
        return int(other) <= 1

    def __bool__(self) -> bool:
        return True

    __hash__ = int.__hash__


class Emptied(TorchFunctionMode):
    """Lets one selection select nothing; `hidden` sizes of 0 deny it."""

    def __init__(self, place: int, *, hidden: bool = False) -> None:
        super().__init__()
        self.count = 0
        self._place = place
        self._hidden = hidden

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function by a mask of nothing, if it is this one's turn."""
        at = _mask_place(func, args)
        if at is not None:
            if self.count == self._place:
                args = (*args[:at], torch.zeros_like(args[at], dtype=torch.bool), *args[at + 1 :])
            self.count += 1
        result = func(*args, **(kwargs or {}))
        return _with_some(result) if self._hidden and func in SIZES else result


def guards_nothing(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether the guards of empty selections make no difference to results and gradients."""
    natural = Emptied(-1)
    _results(module, args, kwargs, natural)
    if not 0 < natural.count <= MOST_SELECTIONS:
        return False
    return all(
        _are_equal(*(_attempt(module, args, kwargs, place, hidden) for hidden in (False, True)))
        for place in range(natural.count)
    )


def _attempt(
    module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], place: int, hidden: bool
) -> list[torch.Tensor] | None:
    try:
        return _results(module, args, kwargs, Emptied(place, hidden=hidden))
    except Exception:  # whatever the module's own code raises
        return None


def _results(
    module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], mode: Emptied
) -> list[torch.Tensor]:
    """Run a copy of the module; return its results, and the gradients of their sum."""
    copied, (own_args, own_kwargs) = copied_module(module), deepcopy((args, dict(kwargs)))
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        with mode:
            returned = copied(*own_args, **own_kwargs)
        found = [x for x in pytree.tree_leaves(returned) if isinstance(x, torch.Tensor)]
        floats = [x.float().sum() for x in found if x.is_floating_point() and x.requires_grad]
        trained = [x for x in copied.parameters() if x.requires_grad]
        grads: tuple[torch.Tensor | None, ...] = (None,) * len(trained)
        if floats and trained:
            grads = torch.autograd.grad(sum(floats), trained, allow_unused=True)
    zeros = (torch.zeros_like(x) if g is None else g for x, g in zip(trained, grads, strict=True))
    return [*(x.detach() for x in found), *zeros]


def _are_equal(one: list[torch.Tensor] | None, other: list[torch.Tensor] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(x.shape == y.shape and torch.equal(x, y) for x, y in zip(one, other, strict=True))


def _mask_place(func: Any, args: tuple[Any, ...]) -> int | None:
    """Return which argument of a call is a mask by which it selects."""
    if func in BY_MASK and len(args) == 1:
        return 0
    is_mask = func in AT_MASK and isinstance(args[1], torch.Tensor) and args[1].dtype is torch.bool
    return 1 if is_mask else None


def _with_some(sizes: Any) -> Any:
    """Return sizes of which those of 0 deny it."""
    if isinstance(sizes, torch.Size):
        return torch.Size(Some(size) if size == 0 else size for size in sizes)
    return Some(sizes) if isinstance(sizes, int) and sizes == 0 else sizes
