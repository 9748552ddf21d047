"""Reverse-mode differentiation of a graph at compile time, for the trained values only.

Nodes that depend on something in `wrt` are marked first; only they get a cotangent. Everything
below the lowest trained weight, or behind a `stop_gradient`, is never differentiated. Cotangents of
a value with several users are summed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.channel_readers import ChannelReader, channel_reader
from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import F32, Shape, TensorType
from pockengine.compiler.ops.custom import CUSTOM
from pockengine.compiler.ops.elementwise import STOP
from pockengine.compiler.ops.registry import ChannelSet, Formula, lookup
from pockengine.errors import CompileError

Channels = ChannelSet | None
"""Trained channels of a weight: a range or sorted indices; None for all."""


def backward(
    g: Builder, loss: Value, wrt: Mapping[Value, Channels], seed: Value | None = None
) -> dict[Value, Value]:
    """Append the backward nodes of the scalar `loss`; return the gradient of each value in `wrt`.

    Gradients are those of the loss times `seed`, an f32[], by default 1. A value with selected
    channels gets the gradient of those channels only. Values that `loss` does not depend on are
    absent from the result.
    """
    if loss.type != TensorType(F32, ()):
        raise CompileError(
            f"the loss must be a scalar f32, not {loss!r}; reduce it, for instance with a mean"
        )
    reverse = _Reverse(g, list(g.graph.nodes), wrt)
    if loss not in reverse.needed:
        return {}
    return reverse.run({loss: g.scalar(1.0) if seed is None else seed})


def derivatives(
    g: Builder, cotangents: Mapping[Value, Value], wrt: Sequence[Value]
) -> dict[Value, Value]:
    """Append the backward nodes for values with these cotangents; the gradients are differentiable.

    A loss can therefore contain them. Values that no cotangent depends on are absent from the
    result.
    """
    nodes = _between(g.graph.nodes, cotangents, wrt)
    return _Reverse(g, nodes, dict.fromkeys(wrt), again=True).run(cotangents)


def _between(nodes: list[Node], results: Iterable[Value], wrt: Sequence[Value]) -> list[Node]:
    """Return the nodes that compute the results from `wrt`, in order."""
    found: set[Node] = set()
    seen, waiting = set(wrt), list(results)
    while waiting:
        value = waiting.pop()
        if value not in seen and value.node is not None:
            found.add(value.node)
            waiting.extend(value.node.operands)
        seen.add(value)
    return [node for node in nodes if node in found]


def influences(graph: Graph, result: Value) -> set[Value]:
    """Return the values that `result` has a gradient for, itself included."""
    found = {result}
    for node in reversed(graph.nodes):
        if node.op != STOP and any(value in found for value in node.results):
            found.update(operand for operand in node.operands if operand.dtype.differentiable)
    return found


def _depend_on(nodes: list[Node], wrt: Mapping[Value, Channels]) -> set[Value]:
    needed = set(wrt)
    for node in nodes:
        if node.op != STOP and any(operand in needed for operand in node.operands):
            needed.update(result for result in node.results if result.dtype.differentiable)
    return needed


@dataclass(frozen=True)
class _Part:
    """The channels of a value that get a gradient, and its shape; None if any will do."""

    channels: ChannelSet
    shape: Shape | None = None


def _parts(graph: Graph, wrt: Mapping[Value, Channels]) -> dict[Value, _Part]:
    """Return the values of which some channels get a gradient, reshaped weights included."""
    found = {value: _Part(channels) for value, channels in wrt.items() if channels is not None}
    users = graph.users() if found else {}
    for value, part in list(found.items()):
        reader = channel_reader(users, value)
        if isinstance(reader, ChannelReader):
            found.update(dict.fromkeys(reader.chain, part))
            found[value] = _Part(part.channels, reader.part_shape(part.channels))
            found[reader.chain[-1]] = _Part(reader.as_read(part.channels))
    return found


class _Reverse:
    """One reverse pass over the nodes that sums cotangents."""

    def __init__(
        self, g: Builder, nodes: list[Node], wrt: Mapping[Value, Channels], *, again: bool = False
    ) -> None:
        """Visit `nodes` in reverse; with `again` only through differentiable gradient ops."""
        self.needed = _depend_on(nodes, wrt)
        self._g = g
        self._nodes = nodes
        self._wrt = wrt
        self._parts = _parts(g.graph, wrt)
        self._again = again
        self._cotangents: dict[Value, Value] = {}

    def run(self, cotangents: Mapping[Value, Value]) -> dict[Value, Value]:
        """Return the gradient of each value in `wrt` that affects these results."""
        self._cotangents.update(cotangents)
        for node in reversed(self._nodes):
            dy = self._cotangent(node)
            if dy is not None:
                with self._g.scope(node.scope):
                    self._differentiate(node, dy)
        return {x: self._cotangents[x] for x in self._wrt if x in self._cotangents}

    def _cotangent(self, node: Node) -> Value | None:
        if any(result in self._cotangents for result in node.results[1:]):
            raise CompileError(f"{node}: only its first result is differentiable")
        return self._cotangents.get(node.results[0]) if node.results else None

    def _differentiate(self, node: Node, dy: Value) -> None:
        formula = lookup(node.op).formula
        if node.op == CUSTOM:
            self._by_user(node, dy)
        elif self._again and formula is not None:
            self._by_formula(node, dy, formula)
        else:
            for index, operand in enumerate(node.operands):
                if operand in self.needed and operand.dtype.differentiable:
                    self._add(operand, self._by_rule(node, index, dy))

    def _by_rule(self, node: Node, index: int, dy: Value) -> Value:
        definition, operand = lookup(node.op), node.operands[index]
        name, part = definition.operand_name(index), self._parts.get(operand)
        if part is not None and node.op == "reshape":
            return dy if part.shape is None else self._g.reshape(dy, shape=part.shape)
        if part is not None:
            return definition.channel_vjp[name](self._g, node, dy, part.channels)
        rule = definition.vjp_rule(index)
        if rule is None:
            raise CompileError(
                f"{node}: {node.op} has no gradient for its operand {name}; "
                f"freeze what {operand!r} depends on"
            )
        return rule(self._g, node, dy)

    def _by_formula(self, node: Node, dy: Value, formula: Formula) -> None:
        """Rewrite the op in terms of other ops, and differentiate those."""
        first = len(self._g.graph.nodes)
        y = formula(self._g, node)
        inner = self._g.graph.nodes[first:]
        wrt = dict.fromkeys(x for x in node.operands if x in self.needed)
        found = _Reverse(self._g, inner, wrt, again=True).run({y: dy})
        for operand, dx in found.items():
            self._add(operand, dx)

    def _by_user(self, node: Node, dy: Value) -> None:
        """Recompute the user's gradient formula with the actual cotangent substituted."""
        _, cotangent, *pairs = node.operands
        gradients = {dx for x, dx in zip(pairs[::2], pairs[1::2], strict=True) if x in self.needed}
        read = _ancestors(gradients)
        known = {cotangent: dy}
        for inner in self._nodes:
            if not read.isdisjoint(inner.results) and any(x in known for x in inner.operands):
                operands = (known.get(x, x) for x in inner.operands)
                copy = self._g.emit(inner.op, *operands, **inner.attrs)
                known.update(zip(inner.results, copy.results, strict=True))
        for x, dx in zip(pairs[::2], pairs[1::2], strict=True):
            if x in self.needed:
                self._add(x, known.get(dx, dx))

    def _add(self, operand: Value, dx: Value) -> None:
        before = self._cotangents.get(operand)
        self._cotangents[operand] = dx if before is None else self._g.add(before, dx)


def _ancestors(values: set[Value]) -> set[Value]:
    """Return values and everything they are computed from."""
    seen: set[Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            waiting.extend(value.node.operands if value.node else ())
    return seen
