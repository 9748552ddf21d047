"""Indices that differ by a constant, such as the ends of `x[:, start : start + 4]`."""

from typing import Any

import torch
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from pockengine.frontends.faults import theirs
from pockengine.frontends.torch.decisions import traced_node
from pockengine.frontends.torch.selected import is_written

ADDED = ("aten.add.Tensor", "aten.add.Scalar")


class Distances(TorchFunctionMode):
    """Tells a trace the distance from a slice's start to its end, which must be in bounds."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[Node, Any] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Read a number; one with a known distance to another is computed from it."""
        if func is torch.ops.aten.slice and len(args) == 5:
            _lies_within(*args[:4])
        if func is not torch.Tensor.item or args[0].is_floating_point():
            return theirs(func, *args, **(kwargs or {}))
        node, more = traced_node(args[0]), 0
        while node is not None and node not in self._numbers and _adds(node):
            node, more = node.args[0], more + node.args[1]
        if node in self._numbers and more > 0 and not is_written(node):
            return self._numbers[node] + more
        number = theirs(func, *args)
        node = traced_node(args[0])
        if node is not None and isinstance(number, torch.SymInt):
            self._numbers[node] = number
        return number


def _lies_within(x: torch.Tensor, dim: int, start: Any, stop: Any) -> None:
    """Mark a slice of known length as not truncated."""
    if isinstance(start, torch.SymInt) and isinstance(stop, torch.SymInt):
        length = (stop - start).node.maybe_as_int()
        if length is not None and length > 0:
            torch._check(start >= 0)
            torch._check(stop <= x.shape[dim])


def _adds(node: Node) -> bool:
    return str(node.target) in ADDED and isinstance(node.args[1], int) and not node.kwargs
