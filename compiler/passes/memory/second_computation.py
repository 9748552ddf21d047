"""Recompute forward values in the backward pass, for passes that free activations."""

import math
from collections.abc import Callable, Iterable, Sequence

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import Graph, Node, Value
from pockengine.compiler.ir.types import BOOL
from pockengine.compiler.ops.registry import lookup

SMALLEST = 1024
"""Minimum number of elements for which freeing a value is worth a kernel."""


def split_at(graph: Graph, loss: Value) -> tuple[list[Node], list[Node]]:
    """Return the nodes up to the one that makes `loss`, and those after it."""
    assert loss.node is not None
    last = graph.nodes.index(loss.node)
    return graph.nodes[: last + 1], graph.nodes[last + 1 :]


def backward_readers(graph: Graph, loss: Value) -> dict[Value, list[Node]]:
    """Large differentiable results of nodes before the loss, with their readers after it.

    Graph outputs are excluded, as they stay alive anyway.
    """
    forward, backward = split_at(graph, loss)
    outputs = set(graph.outputs.values())
    made = {result for node in forward for result in node.results}
    readers: dict[Value, list[Node]] = {}
    for node in backward:
        for operand in dict.fromkeys(node.operands):
            if operand in made:
                readers.setdefault(operand, []).append(node)
    return {
        value: nodes
        for value, nodes in readers.items()
        if value not in outputs and value.type.size >= SMALLEST and value.dtype.differentiable
    }


class Backward:
    """The nodes after the loss, in an ordered list with cheap insertion and removal.

    Nodes are sorted by key. A node inserted before another gets that node's key, with a number that
    increases with each insertion before its last part.
    """

    def __init__(self, graph: Graph, loss: Value) -> None:
        """Take over the nodes after the one that makes `loss`; `finish` returns them to the
        graph.
        """
        self.graph = graph
        self.forward, nodes = split_at(graph, loss)
        self._keys: dict[Node, tuple[float, ...]] = {}
        self._readers: dict[Value, dict[Node, None]] = {}
        self._inserted = 0
        for place, node in enumerate(nodes):
            self._add(node, (place, math.inf))

    def finish(self) -> None:
        """Set the graph's nodes to those up to the loss and these."""
        self.graph.nodes[:] = [*self.forward, *sorted(self._keys, key=self._keys.__getitem__)]

    def __contains__(self, node: Node) -> bool:
        """Whether the node is after the loss."""
        return node in self._keys

    def readers(self, value: Value) -> list[Node]:
        """Return the nodes after the loss that read a value, in order."""
        return self.in_order(self._readers.get(value, ()))

    def in_order(self, nodes: Iterable[Node]) -> list[Node]:
        """Sort nodes that are after the loss."""
        return sorted(nodes, key=self._keys.__getitem__)

    def read(self) -> set[Value]:
        """Return the values that nodes after the loss read."""
        return {value for value, readers in self._readers.items() if readers}

    def reads(self, value: Value) -> bool:
        """Whether a node after the loss reads a value."""
        return bool(self._readers.get(value))

    def first_reader(self, values: Iterable[Value]) -> Node:
        """Return the first node after the loss that reads any of some values; one does."""
        readers = (node for value in values for node in self._readers.get(value, ()))
        return min(readers, key=self._keys.__getitem__)

    def precedes(self, node: Node, other: Node) -> bool:
        """Whether a node after the loss comes before another."""
        return self._keys[node] < self._keys[other]

    def reads_whole(self, value: Value) -> bool:
        """Whether a node reads more than bits or some channels of a value, which must then be
        saved.
        """
        return any(
            not lookup(node.op).slices and not is_mask(node, value)
            for node in self._readers.get(value, ())
        )

    def insert(self, nodes: Sequence[Node], before: Node) -> None:
        """Put new nodes right before one."""
        for node in nodes:
            self._add(node, self._key_before(before))

    def lift(self, node: Node, before: Node) -> None:
        """Move a node right before another, if it is behind it, and its operands before it."""
        if self.precedes(node, before):
            return
        self._keys[node] = self._key_before(before)
        for operand in node.operands:
            if operand.node is not None and operand.node in self._keys:
                self.lift(operand.node, node)

    def remove(self, node: Node) -> None:
        """Remove a node."""
        del self._keys[node]
        for operand in node.operands:
            self._readers[operand].pop(node, None)

    def replace(
        self, old: Value, new: Value, start: Node | None = None, only: Node | None = None
    ) -> None:
        """Make all nodes (or one, or those from `start` on) read `new` where they read `old`."""
        for node in self.readers(old) if only is None else [only]:
            if start is None or self._keys[node] >= self._keys[start]:
                node.operands = tuple(new if value is old else value for value in node.operands)
                del self._readers[old][node]
                self._readers.setdefault(new, {})[node] = None

    def _key_before(self, node: Node) -> tuple[float, ...]:
        *head, last = self._keys[node]
        self._inserted += 1
        return (*head, self._inserted, last)

    def _add(self, node: Node, key: tuple[float, ...]) -> None:
        self._keys[node] = key
        for operand in node.operands:
            self._readers.setdefault(operand, {})[node] = None


def is_mask(node: Node, value: Value) -> bool:
    """Whether a node compares `value` with scalars only, so that bits of it are enough."""
    others = [operand for operand in node.operands if operand is not value]
    compares = lookup(node.op).elementwise and node.result.dtype is BOOL
    return compares and all(other.type.size == 1 for other in others)


def elementwise_chain(value: Value, is_saved: Callable[[Value], bool]) -> list[Node] | None:
    """Nodes, in order, that compute `value` from saved values, sources and small vectors only.

    None if that needs a node that is neither elementwise nor a view, or has another size. Visits
    each node once: a value read twice would otherwise double the work at every step back.
    """
    chain: dict[Node, None] = {}
    pending = [value]
    while pending:
        node = pending[-1].node
        if node is None or not _keeps_places(node) or pending[-1].type.size != value.type.size:
            return None
        missing = [
            operand
            for operand in node.operands
            if operand.node is not None and operand.node not in chain
            if operand.type.size >= SMALLEST and not is_saved(operand)
        ]
        if missing:
            pending.append(missing[0])
        else:
            chain[node] = None
            pending.pop()
    return list(chain)


def _keeps_places(node: Node) -> bool:
    definition = lookup(node.op)
    return definition.elementwise or definition.view


def compute_again(
    g: Builder, backward: Backward, values: Iterable[Value], chain: Sequence[Node]
) -> None:
    """Clone the chain that makes `values`, before their first reader after the loss, for all
    readers.

    Readers from there on read other results of the chain from the clones too.
    """
    first = backward.first_reader(values)
    again: list[Node] = []
    copies: dict[Value, Value] = {}
    with g.into(again):
        for node in chain:
            with g.scope(node.scope):
                operands = (copies.get(operand, operand) for operand in node.operands)
                copy = g.emit(node.op, *operands, **node.attrs)
            copy.recomputes = node
            copies[node.result] = copy.result
    for old, new in copies.items():
        backward.replace(old, new, start=first)
    backward.insert(again, first)
