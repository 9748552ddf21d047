"""Recompute activations in the backward pass instead of saving them, to meet a memory budget.

At the node with the most live bytes, the activation that frees most bytes per extra operation is
dropped: it then lives until its last forward reader, and is recomputed before its first backward
reader (Chen et al., arXiv 1604.06174, with the choice made per value). This repeats until the
planned arena fits, including the kernels' scratch. In a large graph, where each plan takes seconds,
whole blocks are dropped first: the fewest that fit, found by bisection.
"""

from collections.abc import Callable, Container, Iterable
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
from pockengine.compiler.passes.memory.second_computation import Backward
from pockengine.compiler.target import Target
from pockengine.errors import BudgetError

Plan = Callable[[Graph], tuple[Buffer, ...]]
"""Returns the buffers of a graph as it will run, fused and scheduled."""

OPERATIONS_PER_ELEMENT = 8
"""Cost of moving one element, in multiply-adds: elementwise nodes are not free."""

STEPS = 16
"""Fraction (1 / STEPS) of the arena to free per step if the budget does not determine it."""

BLOCK_FACTORS = 1, 2
"""Multiples of the optimal number of equal blocks to try: with more blocks, more values are saved
between them, but the recomputation of one block takes less memory.
"""

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
        buffers = plan(graph)
        before = arena_size(pack(buffers))

        def begin() -> _Search:
            whole.restore()
            return _Search(graph, self.memory_budget, plan, buffers=buffers, smallest=before)

        search = begin()
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
        return lifetimes(copy, scratch, target.alignment, target.in_place).buffers

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
    """Return a search that has dropped the fewest blocks that fit; all of the best, if none do."""

    def trial(cuts: Cuts, count: int) -> _Search:
        search = begin()
        search.drop_blocks(cuts, count)
        return search

    whole = begin().rewriter
    found = [find_cuts(whole.forward, whole.backward.read(), finer) for finer in BLOCK_FACTORS]
    arenas: dict[Cuts, int] = {}
    for cuts in dict.fromkeys(found):
        search = trial(cuts, len(cuts.places))
        arenas[cuts] = search.smallest
        if search.smallest <= size:
            break
    last = cuts, len(cuts.places)  # the graph is that of the last trial
    best = min(arenas, key=arenas.__getitem__)
    few, many = 0, len(best.places)
    while arenas[best] <= size and many - few > 1:
        last = best, (few + many) // 2
        search = trial(*last)
        if search.smallest <= size:
            _, many = last
        else:
            _, few = last
    return search if last == (best, many) else trial(best, many)


@dataclass
class _Search:
    """Drops activations until the arena fits `size`.

    `buffers` are those of the graph, and `smallest` is the smallest arena reached.
    """

    graph: Graph
    size: int
    plan: Plan
    buffers: tuple[Buffer, ...]
    smallest: int

    def __post_init__(self) -> None:
        self.rewriter = _Rewriter(self.graph)

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
            self.rewriter.drop(chosen)
            self._plan_again()
        return True

    def drop_blocks(self, cuts: Cuts, count: int) -> None:
        """Drop the activations of the first `count` blocks, except values that cross a cut."""
        end = cuts.places[count - 1] + 1 if count else 0
        self.rewriter.drop_before(end, cuts.crossing)
        self._plan_again()

    def _plan_again(self) -> None:
        self.buffers = self.plan(self.graph)
        if lower_bound(self.buffers) < self.smallest:  # a lower bound of every plan
            self.smallest = min(self.smallest, arena_size(pack(self.buffers)))


class _Rewriter:
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

    def drop(self, values: Iterable[Value]) -> None:
        """Make the backward pass recompute `values`, each right before its first reader."""
        for value in values:
            # Another result of its node may have been dropped, and this one with it.
            if value not in self.copies and value.node is not None:
                self._recompute(value.node)
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
            if operand in again and operand.node is not None:
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
