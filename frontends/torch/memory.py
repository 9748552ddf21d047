"""The present value of each name in an exported program, updated by writes.

Values of our IR are immutable. A write binds a new value to the written name and to the names it is
a view of, up to the owner of the memory; other names of that memory are recomputed when read.

`run_decompositions({})` of `torch.export` removes writes too, but changes gradients: a write under
`torch.no_grad()` or through `detach()` then scales or cuts off the gradient of the written tensor.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from pockengine.compiler.ir import Builder
from pockengine.frontends.emit import trains
from pockengine.frontends.emit.complex import Complex, each
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain
from pockengine.frontends.torch.aten import AtenContext, elementwise
from pockengine.frontends.torch.aten.registry import Missing
from pockengine.frontends.torch.nodes import DETACH, written_by
from pockengine.frontends.torch.storage import Storages
from pockengine.frontends.torch.views import begins_at, put_back, put_back_at, put_back_constant
from pockengine.frontends.walker import complex_constant, constant

Known = Any
"""The value of a name: a `Tensor`, a constant as torch.Tensor, a sequence of either, a module
with a subgraph, or None for a value that could not be imported."""

STALE = (
    "it reads a tensor whose memory another input or result shares, after a write; use the "
    "operator's out-of-place form"
)

OVERLAP = (
    "it writes to memory that it reads through another view, which PyTorch computes in no "
    "promised order; .clone() the tensor that is read"
)


class Memory:
    """The names of one import and their values."""

    def __init__(self, g: Builder, derive: Callable[[Node], Known]) -> None:
        """Start empty; `derive` computes a view from its base."""
        self.g = g
        self.known: dict[Node, Known] = {}
        self.storages = Storages()
        self._derive = derive
        self._constants: dict[Node, Tensor] = {}
        """Constants that something in the graph reads."""
        self._attached: set[Node] = set()
        """Detached names whose elements were later written with their own gradient."""

    def add(self, name: Node, value: Known, origin: Node | None = None) -> None:
        """Take in a name; `origin` is the name that it is another one of."""
        self.known[name] = value
        self.storages.add(name, origin)

    def current(self, name: Node) -> Known:
        """Return the value of a name after all writes so far."""
        if self.storages.is_outdated(name):
            origin = self.storages.origin(name)
            if origin is None or name in self._attached:
                raise Unsupported(STALE)
            self._set(name, self.current(origin.name) if origin.same else self._derive(name))
        return self.known[name]

    def check_apart(self, node: Node) -> None:
        """Raise Unsupported for an operator that writes to memory that it reads through another
        view."""
        for written in written_by(node):
            if any(self.storages.overlaps(written, source) for source in node.all_input_nodes):
                raise Unsupported(OVERLAP)

    def write(self, name: Node, value: Known, *, recorded: bool = True) -> None:
        """Bind a new value to a name and everything that shares its memory.

        Where autograd does not record the write, gradients flow as they did before.
        """
        if any(isinstance(size, int) and not size for size in name.meta["val"].shape):
            return
        if isinstance(value, Missing):
            value = None
        self._put(name, value, recorded=recorded)
        if recorded and any(map(_stops, self.storages.path(name))) and self._is_trained(value):
            self._attached.add(name)
        self.storages.write(name)

    def _put(self, name: Node, value: Known, *, recorded: bool) -> None:
        origin = self.storages.origin(name)
        if origin is not None:
            whole = self._whole(name, origin.name, value, same=origin.same)
            self._put(origin.name, whole, recorded=recorded and not _stops(name))
        self._set(name, value if recorded else self._unrecorded(name, value))

    def _set(self, name: Node, value: Known) -> None:
        self.known[name] = value
        self._constants.pop(name, None)
        self.storages.update(name)

    def _whole(self, name: Node, origin: Node, value: Known, *, same: bool) -> Known:
        """Return the new value of a view's origin."""
        whole = self.current(origin)
        if value is None or same or _stops(name):
            return value
        if whole is None:  # it could not be built: a part of it is incomplete
            return None
        constant = isinstance(whole, torch.Tensor) and isinstance(value, torch.Tensor)
        if constant and not isinstance(begins_at(name)[1], Node):
            return put_back_constant(whole, value, name, origin)
        parts = self.in_graph(whole), self.in_graph(value)
        dim, start = begins_at(name)
        if isinstance(start, Node):
            return put_back_at(self.g, *parts, dim, self.known[start])
        return put_back(self.g, *parts, name, origin)

    def _is_trained(self, value: Known) -> bool:
        """Return whether a gradient may flow through a value to a parameter."""
        return isinstance(value, Tensor) and _is_float(value) and trains(self.g, value)

    def _unrecorded(self, name: Node, value: Known) -> Known:
        """Return a value that was written outside autograd."""
        before = self.current(name)
        if value is None or not _is_float(value):
            return value
        if not self._is_trained(before):
            return self.detached(value)
        values = [framework_order(self.g, self.in_graph(x)) for x in (value, before)]
        cotangent = self.g.emit("cotangent", shape=values[0].shape).result
        result = self.g.emit("custom_gradient", values[0], cotangent, values[1], cotangent)
        return plain(result.result)

    def detached(self, value: Known) -> Known:
        """Return a value, or a list of values, without a gradient."""
        if isinstance(value, (list, tuple)):
            return [self.detached(part) for part in value]
        if isinstance(value, Complex):
            return each(self.detached, value)
        if isinstance(value, Tensor) and _is_float(value):
            return elementwise.detach(AtenContext(self.g, (), None), value)
        return value

    def tensor(self, name: Node) -> Known:
        """Return the value of a name; a constant is added to the graph, once."""
        known = self.current(name)
        if isinstance(known, Missing):
            raise Unsupported(known.reason)
        if not isinstance(known, torch.Tensor):
            return known
        if known.is_complex():
            return complex_constant(self.g, known.to(torch.complex64).resolve_conj().numpy())
        if name not in self._constants:
            self._constants[name] = self._constant(known)
        return self._constants[name]

    def in_graph(self, known: Tensor | torch.Tensor) -> Tensor:
        """Return a value; a constant is first added to the graph."""
        return self._constant(known) if isinstance(known, torch.Tensor) else known

    def _constant(self, data: torch.Tensor) -> Tensor:
        if data.is_floating_point():  # of fewer bits they are numbers of float32 as well
            data = data.float()
        return constant(self.g, data.cpu().numpy())


def _stops(name: Node) -> bool:
    """Return whether a view is one that no gradient flows through."""
    return str(name.target) in ("aten.detach.default", DETACH)


def _is_float(value: Known) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_floating_point()
    return isinstance(value, Tensor) and value.dtype.is_float
