"""Whether a module that asks if any rows are selected only skips work that comes to nothing.

Experts of a mixture are often guarded by `if rows.numel() == 0: continue`, or by `mask.any()`.
Where no row is selected, sums over them are 0 and writes of them change nothing, so the guard does
not matter, unless one side of it does something else. To find out, the module runs with each mask
in turn false everywhere: once as it is, once with guards that find some rows.
"""

import hashlib
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pockengine.frontends.torch.counts import ASKS, Counts, lengths
from pockengine.frontends.torch.decisions import Line, copied_module, line_of

BY_MASK = {torch.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere}
SIZES = {torch.numel, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.size}
SIZES |= {torch.Tensor.shape.__get__}
MOST_MASKS = 128
"""Masks that are emptied, each by up to two runs of the module."""


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
    """Lets one mask hold nowhere; where `hidden`, sizes and counts of 0 deny it."""

    def __init__(self, key: Any = None, *, hidden: bool = False) -> None:
        super().__init__()
        self.masks: dict[Any, None] = {}
        """What each mask is computed by, in order."""
        self.denied: set[Line] = set()
        """Lines that saw rows where there are none."""
        self._key = key
        self._hidden = hidden
        self._counts = Counts()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; a mask that it gives or reads is empty, if it is this one's turn."""
        kwargs = kwargs or {}
        if func in BY_MASK and len(args) == 1 and args[0].dtype is not torch.bool:
            args = (self.emptied(args[0], func),)
        result = func(*args, **kwargs)
        if _is_mask(result):
            result = self.emptied(result, func, args, kwargs)
        elif isinstance(result, (tuple, list)) and any(map(_is_mask, result)):
            result = type(result)(self.emptied(x, i, func, args) for i, x in enumerate(result))
        self._counts.note(func, args, kwargs, result)
        return self._denied(func, args, result) if self._hidden else result

    def emptied(self, mask: torch.Tensor, *source: Any) -> torch.Tensor:
        """Return a mask, or one of nothing for that whose turn it is; others of its source too."""
        key = _digest((*source, mask))
        self.masks.setdefault(key)
        return torch.zeros_like(mask) if key == self._key else mask

    def _denied(self, func: Any, args: tuple[Any, ...], result: Any) -> Any:
        """Return what a guard sees in place of a size or count of 0."""
        seen = _with_some(result) if func in SIZES else result
        some = self._counts.asks_for_any(args[0]) if func in ASKS else None
        if some is not None:
            seen = some if isinstance(result, bool) else _with_some(result)
        if seen is not result:
            self.denied.add(line_of(sys._getframe(2)))
        return seen


def guards_of_nothing(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> set[Line]:
    """Return the lines whose guards of empty masks change no result and no gradient.

    None are returned where one guard changes something.
    """
    natural, lines = Emptied(), set()
    with lengths():
        _results(module, args, kwargs, natural)
        if len(natural.masks) > MOST_MASKS:
            return set()
        for key in natural.masks:
            hidden = Emptied(key, hidden=True)
            found = _attempt(module, args, kwargs, hidden)
            if hidden.denied and not _are_equal(
                found, _attempt(module, args, kwargs, Emptied(key))
            ):
                return set()
            lines |= hidden.denied
    return lines


def _attempt(
    module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], mode: Emptied
) -> list[torch.Tensor] | None:
    try:
        return _results(module, args, kwargs, mode)
    except Exception:  # whatever the module's own code raises
        return None


def _results(
    module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], mode: Emptied
) -> list[torch.Tensor]:
    """Run a copy of the module; return its results, and the gradients of their sum."""
    copied, (own_args, own_kwargs) = copied_module(module), deepcopy((args, dict(kwargs)))
    for x in filter(_is_mask, [*copied.buffers(), *pytree.tree_leaves((own_args, own_kwargs))]):
        x.copy_(mode.emptied(x))
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
    return all(
        x.shape == y.shape and bool(((x == y) | (x.isnan() & y.isnan())).all())
        for x, y in zip(one, other, strict=True)
    )


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() > 0


def _digest(parts: Any) -> Any:
    """Return what is equal for calls of the same function on the same numbers."""
    if isinstance(parts, torch.Tensor):
        data = parts.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        return (tuple(parts.shape), str(parts.dtype), hashlib.sha256(data).digest())
    if isinstance(parts, Mapping):
        return _digest(tuple(parts.items()))
    return tuple(map(_digest, parts)) if isinstance(parts, (list, tuple)) else repr(parts)


def _with_some(sizes: Any) -> Any:
    """Return sizes of which those of 0 deny it."""
    if isinstance(sizes, torch.Size) and 0 in sizes:
        return torch.Size(Some(size) if size == 0 else size for size in sizes)
    return Some(sizes) if isinstance(sizes, int) and sizes == 0 else sizes
