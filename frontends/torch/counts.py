"""Questions of whether a mask holds anywhere: `mask.any()`, `mask.sum() == 0`, `len(rows)`.

What is computed of a count is computed for some counts beside. A question whose answer for none
differs from that for any more asks whether there are any. A trace and a run on numbers both follow
counts by this, so they find the same questions.
"""

import builtins
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.decisions import Line, line_of, untraced

_FLAGS = ("any", "max", "amax")
_SUMS = ("sum", "count_nonzero")
_ELEMENTWISE = """
    eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ not_equal less less_equal greater
    greater_equal logical_not bitwise_not __invert__ bool to int long float clone detach cpu
"""
FLAGS = {getattr(part, name) for part in (torch, torch.Tensor) for name in _FLAGS}
COUNTERS = FLAGS | {getattr(part, name) for part in (torch, torch.Tensor) for name in _SUMS}
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
"""Functions of counts whose results are followed."""

CASTS = {torch.Tensor.to, torch.Tensor.int, torch.Tensor.long, torch.Tensor.float}
ASKS = {torch.Tensor.__bool__, torch.Tensor.item, torch.Tensor.tolist}
"""Functions by which a guard asks."""

LEN = builtins.len


class Counts:
    """Scalars that are computed of how many elements of a mask are true."""

    def __init__(self) -> None:
        self._casts: dict[int, torch.Tensor] = {}
        self._known: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        """By a tensor's id: the tensor, and what it is where none, one, two and all are true."""

    def note(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Follow a call that counts a mask, or computes of a count."""
        if not isinstance(result, torch.Tensor) or not args:
            return
        if func in CASTS and self._is_mask(args[0]):
            self._casts[id(result)] = result
        if result.dim():
            return
        if func in COUNTERS and self._is_mask(args[0]):
            most = 1 if func in FLAGS else args[0].numel()
            counts = [min(count, most) for count in (0, 1, 2, most)]
            self._keep(result, untraced(lambda: [torch.tensor(count) for count in counts]))
        elif getattr(func, "__name__", "") in ELEMENTWISE and self._follows(args, kwargs):
            each = [[self._value(part, place) for part in args] for place in range(4)]
            self._keep(result, untraced(lambda: [func(*parts, **kwargs) for parts in each]))

    def asks_for_any(self, scalar: Any) -> bool | None:
        """Return the answer where there are any; None where it is not that which is asked."""
        if id(scalar) not in self._known:
            return None
        none, *some = untraced(lambda: [bool(value) for value in self._known[id(scalar)][1]])
        return None if none in some else some[0]

    def _keep(self, result: torch.Tensor, values: list[torch.Tensor]) -> None:
        dtype = result.dtype
        self._known[id(result)] = (result, untraced(lambda: [value.to(dtype) for value in values]))

    def _is_mask(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or not isinstance(value.numel(), int):
            return False
        return value.dtype is torch.bool or id(value) in self._casts

    def _follows(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        tensors = [part for part in (*args, *kwargs.values()) if isinstance(part, torch.Tensor)]
        return bool(tensors) and all(id(part) in self._known for part in tensors)

    def _value(self, part: Any, place: int) -> Any:
        return self._known[id(part)][1][place] if isinstance(part, torch.Tensor) else part


@contextmanager
def lengths() -> Iterator[None]:
    """Let `len` of a tensor be its first size, which may stand for rows that data select."""

    def length(thing: Any) -> Any:
        is_tensor = isinstance(thing, torch.Tensor) and thing.dim() > 0
        return thing.shape[0] if is_tensor else LEN(thing)

    with patch.object(builtins, "len", length):
        yield


class Guards(TorchFunctionMode):
    """Answers guards in a trace: there are some, on lines where it makes no difference."""

    def __init__(self, lines: Collection[Line]) -> None:
        super().__init__()
        self.asked = False
        """Whether there were other guards."""
        self._lines = lines
        self._counts = Counts()
        self._stack = ExitStack()

    def __enter__(self) -> "Guards":
        """Let `len` ask too, as far as there are lines."""
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
            result = theirs(func, *args, **kwargs)
            self._counts.note(func, args, kwargs, result)
            return result
        if line_of(sys._getframe(1)) not in self._lines:
            self.asked = True
            return theirs(func, *args, **kwargs)
        if func is torch.Tensor.__bool__:
            return some
        number = theirs(func, *args, **kwargs)
        if isinstance(number, torch.SymBool):
            torch._check(number if some else not number)
        elif isinstance(number, torch.SymInt) and some:
            torch._check(number >= 1)
        return number
