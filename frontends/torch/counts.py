"""Checks whether a mask is true anywhere: `mask.any()`, `mask.sum() == 0`, `len(rows)`.

Everything computed from a count is also computed for some other counts. A condition that differs
between a count of zero and every other count is a check for emptiness. A trace and a run on numbers
both follow counts in this way, so they find the same checks. Each element of a tensor may be a
count, as in `mask.sum(0)` or `bincount`: a property of one element holds for all.
"""

import builtins
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.decisions import Line, line_of, untraced
from pockengine.frontends.torch.replaced import replaced


def _named(*names: str) -> set[Any]:
    """Return the functions and methods of tensors that have these names."""
    owners = [owner for owner in (torch, torch.Tensor) for name in names if hasattr(owner, name)]
    return {getattr(owner, name) for owner in owners for name in names if hasattr(owner, name)}


FLAGS = _named("any", "max", "amax")
WHOLES = _named("all", "min", "amin")
"""Functions that select the false elements of a mask."""

COUNTERS = FLAGS | WHOLES | _named("sum", "count_nonzero")
BINS = _named("bincount")
ONE_HOT = functional.one_hot
INVERSE = _named("logical_not", "bitwise_not", "__invert__")
_ELEMENTWISE = """
    eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ not_equal less less_equal greater
    greater_equal logical_not bitwise_not __invert__ bool to int long float clone detach cpu
"""
_MOVES = """
    __getitem__ select unbind permute transpose movedim view reshape flatten squeeze unsqueeze
    contiguous detach cpu clone expand t split chunk
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
"""Functions of counts whose results are followed."""

MOVES = frozenset(_MOVES.split())
"""Functions whose results contain only elements of their first argument."""

CASTS = {torch.Tensor.to, torch.Tensor.int, torch.Tensor.long, torch.Tensor.float}
NUMBERS: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.__int__: int,
    torch.Tensor.__float__: float,
    torch.Tensor.__index__: int,
}
"""Functions with which a guard reads a Python number, which a trace cannot follow."""

ASKS = {torch.Tensor.__bool__, torch.Tensor.item, torch.Tensor.tolist, *NUMBERS}
"""Functions with which a guard decides."""

LEN = builtins.len


class Counts:
    """Tensors whose elements are computed from the number of true elements of a mask."""

    def __init__(self) -> None:
        self._masks: dict[int, torch.Tensor] = {}
        """Masks whose elements are numbers, by their ids."""
        self._known: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        """By a tensor's id: the tensor, and its element if none, one, two and all rows are
        selected."""

    def call(self, run: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function through `run`, and follow counts and values computed from them."""
        if func is torch.Tensor.__iter__:
            return iter(self.call(run, torch.unbind, args, kwargs))
        result = run(func, *args, **kwargs)
        several = isinstance(result, (tuple, list)) and getattr(func, "__name__", "") in MOVES
        for part in result if several else [result]:
            if isinstance(part, torch.Tensor) and args:
                self._note(func, args, kwargs, part)
        return result

    def follows(self, value: Any) -> bool:
        """Whether the elements of a tensor are computed of counts."""
        return id(value) in self._known

    def is_mask(self, value: Any) -> bool:
        """Whether a tensor has true or nonzero elements."""
        if not isinstance(value, torch.Tensor) or not isinstance(value.numel(), int):
            return False
        return value.dtype is torch.bool or id(value) in self._masks

    def values(self, value: Any) -> list[torch.Tensor]:
        """Return a followed element for none, one, two and all true elements."""
        return self._known[id(value)][1]

    def asks_for_any(self, value: Any) -> bool | None:
        """Return the answer if there are any; None if the guard decides something else."""
        if not self.follows(value):
            return None
        none, *some = untraced(lambda: [bool(value) for value in self.values(value)])
        return None if none in some else some[0]

    def _note(self, func: Any, args: Any, kwargs: Mapping[str, Any], result: torch.Tensor) -> None:
        name, x = getattr(func, "__name__", ""), args[0]
        if func is ONE_HOT or ((func in CASTS or name in MOVES) and self.is_mask(x)):
            self._masks[id(result)] = result
        if name in MOVES and self.follows(x):
            self._known[id(result)] = (result, self.values(x))
        elif func in BINS and isinstance(x.numel(), int):
            self._keep(result, lambda: [torch.tensor(n) for n in (0, 1, 2, x.numel())])
        elif func in COUNTERS and self.is_mask(x) and isinstance(result.numel(), int):
            self._keep(result, lambda: _counted(func, x.numel() // max(result.numel(), 1)))
        elif name in ELEMENTWISE and self._follows_all((*args, *kwargs.values())):
            each = [[self._value(part, place) for part in args] for place in range(4)]
            self._keep(result, lambda: [func(*parts, **kwargs) for parts in each])

    def _keep(self, result: torch.Tensor, values: Callable[[], list[torch.Tensor]]) -> None:
        dtype = result.dtype
        found = untraced(lambda: [value.to(dtype) for value in values()])
        self._known[id(result)] = (result, found)

    def _follows_all(self, parts: tuple[Any, ...]) -> bool:
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        return bool(tensors) and all(map(self.follows, tensors))

    def _value(self, part: Any, place: int) -> Any:
        return self.values(part)[place] if isinstance(part, torch.Tensor) else part


def _counted(func: Any, most: int) -> list[torch.Tensor]:
    """Return the counts of a function for masks with none, one, two and all elements true."""
    if func in WHOLES:
        return [torch.tensor(count == 0) for count in (0, 1, 2, most)]
    most = 1 if func in FLAGS else most
    return [torch.tensor(min(count, most)) for count in (0, 1, 2, most)]


@contextmanager
def lengths() -> Iterator[None]:
    """Make `len` of a tensor return its first size, which may be symbolic for rows selected by
    data.
    """

    def length(thing: Any) -> Any:
        is_tensor = isinstance(thing, torch.Tensor) and thing.dim() > 0
        return thing.shape[0] if is_tensor else LEN(thing)

    with replaced(builtins, "len", length):
        yield


class Guards(TorchFunctionMode):
    """Answers guards in a trace that rows exist, on lines where this makes no difference."""

    def __init__(self, lines: Collection[Line]) -> None:
        super().__init__()
        self.queried = False
        """Whether there were other guards."""
        self._lines = lines
        self._counts = Counts()
        self._stack = ExitStack()

    def __enter__(self) -> "Guards":
        """Treat `len` as a guard too, if there are rows."""
        if self._lines:
            self._stack.enter_context(lengths())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """End both."""
        super().__exit__(*error)
        self._stack.close()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, or answer a guard."""
        kwargs = kwargs or {}
        some = self._counts.asks_for_any(args[0]) if func in ASKS else None
        if some is None:
            return self._counts.call(theirs, func, args, kwargs)
        if line_of(sys._getframe(1)) not in self._lines:
            self.queried = True
            return theirs(func, *args, **kwargs)
        if func is torch.Tensor.__bool__:
            return some
        if func in NUMBERS:
            return NUMBERS[func](some)
        numbers = theirs(func, *args, **kwargs)
        for number in numbers if isinstance(numbers, list) else [numbers]:
            if isinstance(number, torch.SymBool):
                torch._check(number if some else not number)
            elif isinstance(number, torch.SymInt) and some:
                torch._check(number >= 1)
            elif isinstance(number, torch.SymFloat):
                return float(some)
        return numbers
