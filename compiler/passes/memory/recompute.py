"""Recompute activations in the backward pass instead of saving them, to meet a memory budget.

At the node with the most live bytes, the activation that frees most bytes per extra operation is
dropped: it then lives until its last forward reader, and is recomputed before its first backward
reader (Chen et al., arXiv 1604.06174, with the choice made per value). This repeats until the
planned arena fits, including the kernels' scratch. In a large graph, where each plan takes seconds,
whole blocks are dropped first: the fewest that fit, found by bisection.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from pockengine.compiler.ir.build import Builder
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.key import remembered
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import arena_size, lower_bound, pack, peak_buffers
from pockengine.compiler.ops.registry import lookup, node_cost
from pockengine.compiler.passes.base import Pass, run_passes
from pockengine.compiler.passes.kernels.order import kernel_passes
from pockengine.compiler.passes.memory.recompute_blocks import Cuts, find_cuts
from pockengine.compiler.passes.memory.second_computation import split_at
from pockengine.compiler.target import Target
from pockengine.errors import BudgetError

Plan = Callable[[Graph], tuple[Buffer, ...]]
"""Returns the buffers of a graph as it will run, fused and scheduled."""

OPERATIONS_PER_ELEMENT = 8
"""Cost of moving one element, in multiply-adds: elementwise nodes are not free."""

STEPS = 16
"""Fraction (1 / STEPS) of the arena to free per step if the budget does not determine it."""

LARGE = 3000
"""Node count above which whole blocks are recomputed first: a plan of this size takes a second."""


@dataclass(frozen=True)
class Recompute(Pass):
    """Recompute activations until the planned arena fits a budget, in bytes.

    `others` are the arena bytes that other entries need. Requires: gradients appended, common
    subexpressions merged, no fusions. Leaves: its cost, in `Graph.recomputation`. BudgetError, with
    the smallest possible arena, if the budget is out of reach.
    """

    target: Target
    memory_budget: int
    others: int = 0

    def run(self, graph: Graph) -> None:
        operations = sum(node_cost(node) for node in graph.nodes)
        recomputed, whole, plan = graph.recomputed(), _Whole(graph), _plan_by(self.target)

        def begin() -> _Search:
            whole.restore()
            return _Search(graph, self.memory_budget, plan)

        search = begin()
        before = search.smallest
        if before > self.memory_budget and len(graph.nodes) >= LARGE:
            search = _fewest_blocks(begin, self.memory_budget)
        elif not search.reach(lambda arena: (arena - self.memory_budget) // 2):
            # With steps independent of the budget: results that are feasible once stay feasible.
            search = begin()
        if not search.reach(lambda arena: arena // STEPS):
            least = max(search.smallest, self.others)
            raise BudgetError(
                f"graph {graph.name}: recomputation reaches an arena of {least} bytes, not "
                f"{self.memory_budget}; allow more memory, train less, or use a smaller batch",
                least,
            )
        delay_writes(graph)
        extra = sum(node_cost(node) for node in graph.nodes) - operations
        copies = search.rewriter.copies
        dropped = tuple(value.name for value in copies if value not in recomputed)
        graph.recomputation = Recomputation(dropped, extra, before, search.smallest)


def _plan_by(target: Target) -> Plan:
    kernels, scratch = kernel_passes(target), remembered(target.scratch_bytes)

    def plan(graph: Graph) -> tuple[Buffer, ...]:
        copy = clone(graph)
        run_passes(kernels, copy)
        return lifetimes(copy, scratch, target.alignment, target.overwrites).buffers

    return plan


class _Whole:
    """A snapshot of a graph's nodes, for restarting."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = [(node, node.operands) for node in graph.nodes]

    def restore(self) -> None:
        self._graph.nodes[:] = [node for node, _ in self._nodes]
        for node, operands in self._nodes:
            node.operands = operands


def _fewest_blocks(begin: Callable[[], "_Search"], size: int) -> "_Search":
    """Return a search that has dropped the fewest blocks that fit; all, if none do."""
    search = begin()
    cuts = find_cuts(search.rewriter.forward, search.rewriter.readers)
    few, many = 0, len(cuts.places)
    search.drop_blocks(cuts, many)
    fits = search.smallest <= size
    dropped = many
    while fits and many - few > 1:
        search, dropped = begin(), (few + many) // 2
        search.drop_blocks(cuts, dropped)
        if search.smallest <= size:
            many = dropped
        else:
            few = dropped
    if dropped != many:  # the graph is that of the last trial
        search = begin()
        search.drop_blocks(cuts, many)
    return search


class _Search:
    """Drops activations until the arena fits; `smallest` is the smallest arena reached."""

    def __init__(self, graph: Graph, size: int, plan: Plan) -> None:
        self.graph, self.size, self.plan = graph, size, plan
        self.rewriter = _Rewriter(graph)
        self.buffers = self._buffers()
        self.smallest = self.arena()

    def arena(self) -> int:
        """Planned arena of the graph in bytes."""
        return arena_size(pack(self.buffers))

    def reach(self, step: Callable[[int], int]) -> bool:
        """Drop activations until the arena fits, `step(arena)` bytes at a time; False if
        impossible.
        """
        while self.smallest > self.size:
            alive = peak_buffers(self.buffers)
            at_peak = {value.name for buffer in alive for value in buffer.values}
            arena = max(lower_bound(alive), self.smallest)
            chosen = self.rewriter.choose(at_peak, step(arena))
            if not chosen:
                return False
            for value in chosen:
                if value not in self.rewriter.copies:  # another result of a node just dropped
                    self.rewriter.drop(value)
            self.buffers = self._buffers()
            if lower_bound(self.buffers) < self.smallest:  # a lower bound of every plan
                self.smallest = min(self.smallest, self.arena())
        return True

    def drop_blocks(self, cuts: Cuts, count: int) -> None:
        """Drop the activations of the first `count` blocks, except values that cross a cut."""
        end = cuts.places[count - 1] + 1 if count else 0
        self.rewriter.drop_all(end, cuts.crossing)
        self.buffers = self._buffers()
        self.smallest = min(self.smallest, self.arena())

    def _buffers(self) -> tuple[Buffer, ...]:
        return self.plan(self.graph)


class _Rewriter:
    """The graph with its nodes before and after the loss, and the values dropped so far.

    `readers` are the backward nodes that read each value, unordered.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.forward, self.backward = split_at(graph, graph.outputs[LOSS])
        self._in_forward = set(self.forward)
        self.copies = graph.recomputed()
        self.readers: dict[Value, list[Node]] = {}
        for node in self.backward:
            self._note_reads(node)
        self._second = set(self.copies.values())
        self._builder = Builder(graph)

    def choose(self, at_peak: set[str], excess: int) -> list[Value]:
        """Candidates alive at the peak, best first, until `excess` bytes are freed."""
        candidates = [
            value
            for node in self.forward
            for value in self._droppable(node)
            if value.name in at_peak
        ]
        candidates.sort(key=lambda value: -_worth(value, self.readers))
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
        outputs = set(self.graph.outputs.values())
        return [
            value
            for value in node.results
            if value in self.readers and value not in outputs and value not in self.copies
        ]

    def drop_all(self, end: int, keep: Container[Value]) -> None:
        """Drop all results of forward nodes before `end`, except `keep`.

        In reverse order: recomputing a value reads values that are dropped after it. Values in
        `keep` that an earlier pass recomputes are saved from now on.
        """
        for value in [value for value in self.copies if value in keep]:
            self._restore(value)
        for node in reversed(self.forward[:end]):
            for value in self._droppable(node):
                if value not in keep and value not in self.copies:
                    self.drop(value)

    def drop(self, value: Value) -> None:
        """Make backward nodes read a recomputed `value`, computed right before the first of
        them.
        """
        node = value.node
        assert node is not None
        place = self._first_reader(node)
        operands = tuple(self._available(operand, place) for operand in node.operands)
        again: list[Node] = []
        with self._builder.into(again), self._builder.scope(node.scope):
            copy = self._builder.repeat(node, operands)
        copy.recomputes = node
        place = self._first_reader(node)
        self.backward[place:place] = again
        self._replace(dict(zip(node.results, copy.results, strict=True)))
        self._note_reads(copy)
        self.graph.nodes[:] = [*self.forward, *self.backward]

    def _replace(self, replacement: Mapping[Value, Value]) -> None:
        """Make all backward readers of some values read the recomputed values."""
        for old, new in replacement.items():
            readers = self.readers.pop(old, [])
            for reader in readers:
                reader.operands = tuple(new if v is old else v for v in reader.operands)
            if readers:
                self.readers[new] = readers
        self.copies.update(replacement)
        self._second.update(replacement.values())

    def _restore(self, value: Value) -> None:
        """Make the backward pass read a value itself again, and drop its recomputation."""
        copy = self.copies.pop(value)
        self._second.discard(copy)
        readers = self.readers.pop(copy, [])
        for reader in readers:
            reader.operands = tuple(value if v is copy else v for v in reader.operands)
        self.readers[value] = [*self.readers.get(value, []), *readers]
        if copy.node is not None:
            self._remove_unread(copy.node)
        self.graph.nodes[:] = [*self.forward, *self.backward]

    def _remove_unread(self, node: Node) -> None:
        """Remove an unread recomputation, and those that only it read."""
        if any(self.readers.get(result) for result in node.results):
            return
        self.backward.remove(node)
        again = {copy: value for value, copy in self.copies.items()}
        for result in node.results:
            self.copies.pop(again.get(result, result), None)
        for operand in dict.fromkeys(node.operands):
            self.readers[operand].remove(node)
            if operand in self._second and operand.node is not None:
                self._remove_unread(operand.node)

    def _note_reads(self, node: Node) -> None:
        for operand in dict.fromkeys(node.operands):
            self.readers.setdefault(operand, []).append(node)

    def _first_reader(self, node: Node) -> int:
        """Position of the first backward node that reads any result of a node."""
        readers = (reader for result in node.results for reader in self.readers.get(result, ()))
        return min(self.backward.index(reader) for reader in readers)

    def _available(self, operand: Value, place: int) -> Value:
        """Return an operand's recomputed value if it was dropped, moved up to `place`."""
        copy = self.copies.get(operand)
        if copy is None or copy.node is None:
            return operand
        self._lift(copy.node, place)
        return copy

    def _lift(self, node: Node, place: int) -> None:
        """Move a recomputation, and the backward nodes that it reads, before `place`.

        These are other recomputations, and what earlier passes put before one, such as a cast of a
        saved activation.
        """
        at = self.backward.index(node)
        if at < place:
            return
        self.backward.insert(place, self.backward.pop(at))
        for inner in node.operands:
            if inner.node is not None and inner.node not in self._in_forward:
                self._lift(inner.node, self.backward.index(node))


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
