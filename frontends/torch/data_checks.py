"""Checks of numbers of data: `if x[mask].numel() != y.numel(): raise`, `assert x.max().item() < 9`.

If the other outcome only raises an error, the examples pass the check, and data must as well.
"""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from pockengine.frontends.torch.decisions import Line, copied_module, line_of, own_error
from pockengine.frontends.torch.emptied import SIZES
from pockengine.frontends.torch.replaced import replaced


class _Number:
    """A number that records comparisons on a line, and inverts selected ones."""

    watch: "_ComparisonRecorder"


class _Size(_Number, int):
    """An integer, such as a size."""


class _Float(_Number, float):
    """A floating-point number."""


def _comparing(kind: type, name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, f"__{name}__")

    def compare(number: Any, other: Any) -> Any:
        return number.watch.seen(plain(number, other), line_of(sys._getframe(1)))

    return compare


for _followed, _plain in ((_Size, int), (_Float, float)):
    for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(_followed, f"__{_name}__", _comparing(_plain, _name))
    _followed.__hash__ = _plain.__hash__  # type: ignore[method-assign]


class _ComparisonRecorder(TorchFunctionMode):
    """Records the comparisons of sizes and elements on one line."""

    def __init__(self, line: Line, *, turned: bool) -> None:
        super().__init__()
        self.answers: set[bool] = set()
        self._line = line
        self._turned = turned

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function; its numbers are followed."""
        result = func(*args, **(kwargs or {}))
        if func not in SIZES and func is not torch.Tensor.item:
            return result
        if isinstance(result, bool):
            return self.seen(result, line_of(sys._getframe(1)))
        if isinstance(result, torch.Size):
            return torch.Size(self._followed(size) for size in result)
        return self._followed(result)

    def seen(self, answer: Any, line: Line) -> Any:
        """Record an answer, and return the one that the module gets."""
        if line != self._line or not isinstance(answer, bool):
            return answer
        self.answers.add(answer)
        return answer is not self._turned

    def _followed(self, number: Any) -> Any:
        kind = {int: _Size, float: _Float}.get(type(number))
        if kind is None:
            return number
        followed = kind(number)
        followed.watch = self
        return followed


def answer_of_check(module: torch.nn.Module, args: Any, kwargs: Any, line: Line) -> bool | None:
    """Return how numbers compare on a line that only checks them; None if it is not a check."""
    natural, turned = (_ComparisonRecorder(line, turned=turned) for turned in (False, True))
    copied = copied_module(module)
    for watch in (natural, turned):
        inputs = copy.deepcopy((args, kwargs))
        try:
            with torch.no_grad(), torch.random.fork_rng(), watch:
                copied(*inputs[0], **inputs[1])
        except Exception as error:  # whatever the module raises
            passed = watch is turned and own_error(error) and len(natural.answers) == 1
            return natural.answers.pop() if passed else None
    return None


@contextmanager
def checks_passed(answers: Mapping[Line, bool]) -> Iterator[None]:
    """Answer checks of numbers by data on these lines while a module is traced."""
    original = torch.SymBool.__bool__

    def decide(condition: torch.SymBool) -> bool:
        try:
            return original(condition)
        except GuardOnDataDependentSymNode:
            line = line_of(sys._getframe(1))
            if line not in answers:
                raise
            return answers[line]

    with replaced(torch.SymBool, "__bool__", decide):
        yield
