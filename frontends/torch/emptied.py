"""Detect guards on empty selections that only skip work without effect.

Experts of a mixture are often guarded by `if rows.numel() == 0: continue`, or by `mask.any()`. If
no row is selected, sums over the rows are 0 and writes of them change nothing, so the guard has no
effect, unless one side of it does something else. To find out, the module runs in trials, each of
which empties one mask: once unchanged, once with guards that find some rows.
"""

import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pockengine.frontends.torch.counts import ASKS, NUMBERS, Counts, lengths
from pockengine.frontends.torch.decisions import Line, copied_module, line_of
from pockengine.frontends.torch.trials import Trials

SIZES = {torch.numel, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.size}
SIZES |= {torch.Tensor.shape.__get__}
EXTREMES = {getattr(part, name) for part in (torch, torch.Tensor) for name in ("min", "max")}
"""Functions that raise without elements, as in range checks, which are skipped."""

MOST_TRIALS = 128
"""Trials of one module, each up to two runs of it."""

PLACES = 3
"""Counts that represent all nonzero ones: one, two, and all of them."""


class Some(int):
    """A size of 0 that records comparisons with it."""

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
    """Runs one trial; with `hidden`, sizes and counts of 0 compare as if they were not."""

    def __init__(
        self, trial: Any = None, *, hidden: bool = False, counted: int | None = None
    ) -> None:
        """With `counted` a number of Python that is some is the one at this place of the counts.

        At -1 it is another one each time.
        """
        super().__init__()
        self.counts = Counts()
        self.trials = Trials(trial, self.counts)
        self.denied: set[Line] = set()
        """Lines that were shown rows though there are none."""
        self.numbers = 0
        """Number of reads of a Python number."""
        self._hidden = hidden
        self._counted = counted

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; its results or arguments are changed by the trial."""
        if self._hidden and func in EXTREMES and len(args) == 1 and not (kwargs or args[0].numel()):
            return args[0].new_zeros(())
        result = self.trials.call(func, args, kwargs or {})
        if func in ASKS and self.counts.follows(args[0]):
            return self._replacement(func, args[0], result)
        seen = _with_some(result) if self._hidden and func in SIZES else result
        if seen is not result:
            self.denied.add(line_of(sys._getframe(1)))
        return seen

    def _replacement(self, func: Any, count: torch.Tensor, result: Any) -> Any:
        """Return the replacement of a count for a guard."""
        some = self.counts.asks_for_any(count)
        if some is None:
            return result
        python = func in NUMBERS or isinstance(result, float)
        self.numbers += python
        seen = result
        if self._hidden:
            seen = _denied(result, some, python=python)
        elif python and self._counted is not None and bool(result) is some:
            place = self._counted if self._counted >= 0 else self.numbers % PLACES
            seen = type(result)(self.counts.values(count)[1 + place])
        if self._hidden and seen is not result:
            self.denied.add(line_of(sys._getframe(2)))
        return seen


def _denied(result: Any, some: bool, *, python: bool) -> Any:
    """Invert the answer "there are none"; leave "there are some" unchanged."""
    if isinstance(result, list):
        seen = [_denied(part, some, python=False) for part in result]
        same = all(one is other for one, other in zip(seen, result, strict=True))
        return result if same else seen
    if bool(result) is some:
        return result
    return type(result)(some) if python or isinstance(result, bool) else _with_some(result)


def guards_of_nothing(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any]) -> set[Line]:
    """Return the lines whose guards of empty masks change no result and no gradient.

    The result is empty if a guard has an effect.
    """
    natural, lines = Emptied(), set()
    with lengths():
        results = _results(module, args, kwargs, natural)
        if len(natural.trials.seen) > MOST_TRIALS:
            return set()
        for counted in (*range(PLACES), -1) if natural.numbers else ():
            mode = Emptied(counted=counted)
            if not _are_equal(results, _attempt(module, args, kwargs, mode)):
                return set()
        for trial in natural.trials.seen:
            hidden = Emptied(trial, hidden=True)
            found = _attempt(module, args, kwargs, hidden)
            if hidden.denied and not _are_equal(
                found, _attempt(module, args, kwargs, Emptied(trial))
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
    mode.trials.start(copied.buffers(), pytree.tree_leaves((own_args, own_kwargs)))
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


def _with_some(sizes: Any) -> Any:
    """Return sizes with zeros replaced by `Some`, which denies that the mask is empty."""
    if isinstance(sizes, torch.Size) and 0 in sizes:
        return torch.Size(Some(size) if size == 0 else size for size in sizes)
    return Some(sizes) if isinstance(sizes, int) and sizes == 0 else sizes
