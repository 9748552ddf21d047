"""Trials with other data: masks that are all false or all true, classes without rows.

A trial changes one of them where it is created, so that all values computed from it agree. Masks
and counts of a class, such as the rows of an expert, are changed by assigning another class to its
rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pockengine.frontends.torch.counts import BINS, INVERSE, ONE_HOT, WHOLES, Counts

BY_MASK = {torch.where, torch.nonzero, torch.Tensor.nonzero, torch.argwhere}
COMPARED = {"eq", "ne", "__eq__", "__ne__", "not_equal"}
EMPTY, FULL, CLASS = "empty", "full", "class"


class Trials:
    """The trials that a run of a module finds, and the one that it applies."""

    def __init__(self, trial: Any, counts: Counts) -> None:
        """Start a run; `trial` is one of those that an earlier run has `seen`."""
        self.seen: dict[Any, None] = {}
        """Each a kind of change and its subject, in order."""
        self._trial = trial
        self._counts = counts
        self._constants: dict[int, torch.Tensor] = {}
        """Tensors that are the same for all data, by their ids."""
        self._made: dict[int, tuple[torch.Tensor, Any, Any]] = {}
        """Masks by their ids, with the trials by which each is empty and full."""
        self._of_classes: dict[int, torch.Tensor] = {}
        """Values computed from comparisons with classes."""

    def start(self, buffers: Iterable[torch.Tensor], inputs: Iterable[Any]) -> None:
        """Change an input of the module, if the trial is about one."""
        self._constants = {id(x): x for x in buffers if x.dtype is not torch.bool}
        for x in (*buffers, *inputs):
            if not isinstance(x, torch.Tensor) or id(x) in self._constants:
                continue
            changed = self._changed(x, "start")
            if changed is not x:
                x.copy_(changed)
                self._made[id(x)] = (x, *self._made.pop(id(changed), (x, None, None))[1:])

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function, record possible trials, and apply the selected one."""
        read = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if func in BY_MASK and len(args) == 1 and args[0].dtype is not torch.bool:
            args = (self._changed_mask(args[0], func),)
        self._note_classes(func, args)
        result = self._counts.call(lambda f, *a, **k: f(*a, **k), func, args, kwargs)
        if not isinstance(result, (tuple, list)):
            return self._taken(func, (args, kwargs), read, result)
        parts = [self._taken(func, (i, args), read, part) for i, part in enumerate(result)]
        same = all(one is other for one, other in zip(parts, result, strict=True))
        return result if same else type(result)(parts)

    def _taken(self, func: Any, source: Any, read: list[torch.Tensor], result: Any) -> Any:
        """Record a result, and return its value under the trial."""
        if not isinstance(result, torch.Tensor):
            return result
        if all(id(x) in self._constants for x in read):
            self._constants[id(result)] = result
        if self._is_of_classes(func, read, result):
            self._of_classes[id(result)] = result
            return result
        if func in WHOLES and id(read[0]) in self._made:
            self.seen.setdefault(self._made[id(read[0])][2])
        if func in INVERSE and id(read[0]) in self._made:
            _, empty, full = self._made[id(read[0])]
            self._made[id(result)] = (result, full, empty)
            self.seen.setdefault(full)
            return result
        return result if self._counts.follows(result) else self._changed(result, func, source)

    def _changed(self, x: torch.Tensor, *source: Any) -> torch.Tensor:
        if x.dtype is torch.bool and x.dim() > 0:
            return self._changed_mask(x, *source)
        if self._trial is None or self._trial[0] != CLASS or x.is_floating_point():
            return x
        _, digest, classes = self._trial
        if x.dim() == 0 or _flat(x) != digest:
            return x
        others = [int(other) for other in x.unique() if other != classes]
        return torch.where(x == classes, others[0] if others else abs(classes - 1), x)

    def _changed_mask(self, mask: torch.Tensor, *source: Any) -> torch.Tensor:
        """Return a mask under the trial; other masks of its source change too."""
        if id(mask) in self._of_classes:
            return mask
        digest = _digest((*source, mask))
        self.seen.setdefault((EMPTY, digest))
        if self._trial == (EMPTY, digest):
            mask = torch.zeros_like(mask)
        if self._trial == (FULL, digest):
            mask = torch.ones_like(mask)
        self._made[id(mask)] = (mask, (EMPTY, digest), (FULL, digest))
        return mask

    def _note_classes(self, func: Any, args: tuple[Any, ...]) -> None:
        """Offer to leave out each class that rows are compared with or counted by."""
        if not self._are_classes(func, args):
            return
        x, *others = args if isinstance(args[0], torch.Tensor) else args[::-1]
        if isinstance(others[0] if others else None, torch.Tensor) and id(x) in self._constants:
            x, others = others[0], [x]
        values = x.unique()
        if func not in BINS and func is not ONE_HOT:
            values = values[torch.isin(values, torch.as_tensor(others[0]))]
        for each in values.tolist():
            self.seen.setdefault((CLASS, _flat(x), each))

    def _are_classes(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether integers of data are compared with constants, or counted."""
        if (
            func not in BINS
            and func is not ONE_HOT
            and getattr(func, "__name__", "") not in COMPARED
        ):
            return False
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        by_data = [x for x in tensors if id(x) not in self._constants]
        if len(by_data) != 1 or self._counts.follows(by_data[0]) or by_data[0].dim() == 0:
            return False
        return not any(x.is_floating_point() or x.dtype is torch.bool for x in tensors)

    def _is_of_classes(self, func: Any, read: list[torch.Tensor], result: torch.Tensor) -> bool:
        if id(result) in self._of_classes or self._are_classes(func, tuple(read)):
            return True
        mask = result.dtype is torch.bool or self._counts.is_mask(result)
        return mask and any(id(x) in self._of_classes for x in read)


def _flat(x: torch.Tensor) -> str:
    """Return a key that is equal for tensors with the same integers in the same order."""
    data = x.detach().reshape(-1).to(torch.int64).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()


def _digest(parts: Any) -> Any:
    """Return a key that is equal for calls of the same function on the same numbers."""
    if isinstance(parts, torch.Tensor):
        data = parts.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        return (tuple(parts.shape), str(parts.dtype), hashlib.sha256(data).digest())
    if isinstance(parts, Mapping):
        return _digest(tuple(parts.items()))
    return tuple(map(_digest, parts)) if isinstance(parts, (list, tuple)) else repr(parts)
