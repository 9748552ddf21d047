"""Drop activations of the forward pass: the backward pass recomputes them, or reads them again."""

from collections.abc import Container, Iterable

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ops.registry import lookup, node_cost
from pockengine.compiler.passes.memory.second_computation import Backward

OPERATIONS_PER_ELEMENT = 8
"""Cost of moving one element, in multiply-adds: elementwise nodes are not free."""


class Rewriter:
    """The graph's nodes before and after the loss, and the values dropped so far."""

    def __init__(self, graph: Graph) -> None:
        self.copies = graph.recomputed()
        self.backward = Backward(graph, graph.outputs[LOSS])
        self._outputs = set(graph.outputs.values())
        self._late = set(self.copies)
        self._builder = Builder(graph)

    @property
    def forward(self) -> list[Node]:
        return self.backward.forward

    def choose(self, at_peak: set[str], excess: int) -> list[Value]:
        """Candidates alive at the peak, best first, until `excess` bytes are freed."""
        candidates = [
            value
            for node in self.forward
            for value in self._droppable(node)
            if value.name in at_peak
        ]
        read = self.backward.read()
        candidates.sort(key=lambda value: -_worth(value, read))
        chosen: list[Value] = []
        freed = 0
        for value in candidates:
            if freed >= excess and chosen:
                break
            chosen.append(value)
            freed += value.type.nbytes
        return chosen

    def _droppable(self, node: Node) -> list[Value]:
        """Results of a node that the backward pass reads and can recompute."""
        if lookup(node.op).writes:
            return []
        return [
            value
            for value in node.results
            if value not in self._outputs
            if value not in self.copies and self.backward.reads(value)
        ]

    def drop_before(self, end: int, keep: Container[Value]) -> None:
        """Drop all results of forward nodes before `end`, except `keep`.

        In reverse order: recomputing a value reads values that are dropped after it. Values in
        `keep` that an earlier pass recomputes are saved from now on.
        """
        for value in [value for value in self.copies if value in keep]:
            self._restore(value)
        for node in reversed(self.forward[:end]):
            if any(value not in keep for value in self._droppable(node)):
                self._recompute(node)
        self.backward.finish()

    def most_expensive(self, tried: Container[Node]) -> Node | None:
        """The recomputed node, except some, with the most multiply-adds per byte of its result.

        Of equal ones the last, whose results live shortest. None if only elementwise nodes and
        views are left.
        """
        nodes = {value.node for value in self.copies}
        products = [
            node
            for node in reversed(self.forward)
            if node in nodes and node not in tried
            if not lookup(node.op).elementwise and not lookup(node.op).view
        ]

        def worth(node: Node) -> float:
            return node_cost(node) / node.results[0].type.nbytes

        return max(products, key=worth, default=None)

    def save(self, node: Node) -> None:
        """Make the backward pass read a recomputed node's own results again."""
        for copy in [each for each in self.backward.graph.nodes if each.recomputes is node]:
            for value, again in zip(node.results, copy.results, strict=True):
                self.copies.pop(value, None)
                self.backward.replace(again, value)
            self._remove_unread(copy)
        self.backward.finish()

    def drop(self, values: Iterable[Value]) -> None:
        """Make the backward pass recompute `values`, each right before its first reader."""
        for value in values:
            # Another result of its node may have been dropped, and this one with it.
            if value not in self.copies and value.node is not None:
                self._recompute(value.node)
        self.backward.finish()

    def drop_nodes(self, nodes: Iterable[Node]) -> None:
        """Make the backward pass recompute what it reads of some nodes.

        They are in reverse order: a recomputation reads values of nodes before it.
        """
        for node in nodes:
            read = any(self.backward.reads(value) for value in node.results)
            if read and not any(value in self.copies for value in node.results):
                self._recompute(node)
        self.backward.finish()

    def _recompute(self, node: Node) -> None:
        first = self.backward.first_reader(node.results)
        copy = self._repeat(node, first)
        for old, new in zip(node.results, copy.results, strict=True):
            self.backward.replace(old, new)
        self._lift_roundings(copy, first)

    def _repeat(self, node: Node, before: Node) -> Node:
        operands = tuple(self._available(operand, before) for operand in node.operands)
        again: list[Node] = []
        with self._builder.into(again), self._builder.scope(node.scope):
            copy = self._builder.repeat(node, operands)
        copy.recomputes = node
        self.copies.update(zip(node.results, copy.results, strict=True))
        self.backward.insert(again, before)
        return copy

    def _again(self, value: Value, before: Node) -> Value:
        """Recompute a value before a node although an earlier pass does so later.

        That is elementwise and cheap: the value would live from here to its later readers.
        """
        node = value.node
        assert node is not None
        self._late -= set(node.results)
        return self._repeat(node, before).results[node.results.index(value)]

    def _lift_roundings(self, node: Node, before: Node) -> None:
        """Round right after a recomputation if the last to read it is a recomputed rounding.

        Then the value lives until its other readers, and only the rounded one as long as in the
        forward pass.
        """
        for value in node.results:
            last = self.backward.readers(value)[-1:]
            if last and last[0].recomputes is not None and _narrows(last[0]):
                self.backward.lift(last[0], before)

    def _available(self, operand: Value, before: Node) -> Value:
        """Return an operand's recomputed value if it was dropped, computed before a node.

        What its recomputation reads moves with it: other recomputations, and what earlier passes
        put before one, such as a cast of a saved activation.
        """
        copy = self.copies.get(operand)
        if copy is None or copy.node is None:
            return operand
        if operand in self._late and not self.backward.precedes(copy.node, before):
            return self._again(operand, before)
        self.backward.lift(copy.node, before)
        return copy

    def _restore(self, value: Value) -> None:
        """Make the backward pass read a value itself again, and drop its recomputation."""
        copy = self.copies.pop(value)
        self.backward.replace(copy, value)
        if copy.node is not None:
            self._remove_unread(copy.node)

    def _remove_unread(self, node: Node) -> None:
        """Remove an unread recomputation, and those that only it read."""
        if any(self.backward.readers(result) for result in node.results):
            return
        again = {copy: value for value, copy in self.copies.items()}
        for result in node.results:
            self.copies.pop(again.get(result, result), None)
        self.backward.remove(node)
        for operand in dict.fromkeys(node.operands):
            if operand.node is not None and operand.node.recomputes is not None:
                self._remove_unread(operand.node)


def _narrows(node: Node) -> bool:
    """Whether a node only stores its operand in fewer bits."""
    return node.op == "cast" and node.result.type.nbytes < node.operands[0].type.nbytes


def _worth(value: Value, read_back: Container[Value]) -> float:
    """Bytes freed per operation, minus the bytes that must stay alive for the recomputation."""
    node = value.node
    assert node is not None
    moved = sum(operand.type.nbytes for operand in node.operands) + value.type.nbytes
    extended = sum(
        operand.type.nbytes
        for operand in node.operands
        if operand.node is not None and operand not in read_back
    )
    cost = node_cost(node) + moved / 4 * OPERATIONS_PER_ELEMENT
    return (value.type.nbytes - extended) / cost
