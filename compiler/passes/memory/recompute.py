"""Recompute activations in the backward pass instead of saving them, to meet a memory budget.

At the node with the most live bytes, the activation that frees most bytes per extra operation is
dropped: it then lives until its last forward reader, and is recomputed before its first backward
reader (Chen et al., arXiv 1604.06174, with the choice made per value). This repeats until the
planned arena fits, including the kernels' scratch, and some more are dropped; then the expensive
ones that fit after all are saved again. In a large graph, where each plan takes seconds, whole
blocks are dropped: the fewest that fit, found by bisection.

With time for a solver, the same choice is stated as a problem of numbers and solved exactly. It
replaces the greedy one if its arena fits and it takes fewer multiply-adds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.graph import Graph, Node
from pockengine.compiler.ir.key import remembered
from pockengine.compiler.ir.recomputation import Recomputation
from pockengine.compiler.ir.writes import delay_writes
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import arena_size, lower_bound, pack, peak_buffers
from pockengine.compiler.ops.registry import node_cost
from pockengine.compiler.passes.base import Pass, run_passes
from pockengine.compiler.passes.kernels.order import kernel_passes
from pockengine.compiler.passes.memory.dropping import Rewriter
from pockengine.compiler.passes.memory.recompute_blocks import Cuts, find_cuts
from pockengine.compiler.passes.memory.recompute_exactly import find_exactly, find_problem
from pockengine.compiler.target import Target
from pockengine.errors import BudgetError

Plan = Callable[[Graph], tuple[Buffer, ...]]
"""Returns the buffers of a graph as it will run, fused and scheduled."""

STEPS = 16
"""Fraction (1 / STEPS) of the arena to free per step if the budget does not determine it."""

BLOCK_FACTORS = 1, 2
"""Multiples of the optimal number of equal blocks to try: with more blocks, more values are saved
between them, but the recomputation of one block takes less memory.
"""

EXCESS = 8
"""Fraction (1 / EXCESS) of the budget that is freed beyond it before values are saved again."""

TRIALS = 48
"""Maximum number of recomputed nodes whose results are tried to be saved again."""

LARGE = 3000
"""Node count above which whole blocks are recomputed first: a plan of this size takes a second."""


@dataclass(frozen=True)
class Recompute(Pass):
    """Recompute activations until the planned arena fits a budget, in bytes.

    `others` are the arena bytes that other entries need. A solver may take `solver_seconds` to find
    a cheaper choice. Requires: gradients appended, common subexpressions merged, no fusions.
    Leaves: its cost, in `Graph.recomputation`. BudgetError, with the smallest possible arena, if
    the budget is out of reach.
    """

    target: Target
    memory_budget: int
    others: int = 0
    solver_seconds: float = 0.0

    def run(self, graph: Graph) -> None:
        operations, recomputed = _operations(graph), graph.recomputed()
        whole, plan = _Whole(graph), _plan_by(self.target)
        buffers = plan(graph)
        before = arena_size(pack(buffers))

        def begin() -> _Search:
            whole.restore()
            return _Search(graph, plan, buffers, before)

        search, note = _greedy(begin, self.memory_budget), None
        if before > self.memory_budget and self.solver_seconds:
            search, note = self._solved(begin, search)
        if search.smallest > self.memory_budget:
            least = max(search.smallest, self.others)
            raise BudgetError(
                f"graph {graph.name}: recomputation reaches an arena of {least} bytes, not "
                f"{self.memory_budget}; allow more memory, train less, or use a smaller batch",
                least,
            )
        delay_writes(graph)
        extra = _operations(graph) - operations
        copies = search.rewriter.copies
        dropped = tuple(value.name for value in copies if value not in recomputed)
        graph.recomputation = Recomputation(dropped, extra, before, search.smallest, solver=note)

    def _solved(
        self, begin: Callable[[], "_Search"], greedy: "_Search"
    ) -> tuple["_Search", str | None]:
        """Return the cheaper of a greedy search and an exact one, and what the solver found."""
        graph, budget = greedy.graph, self.memory_budget
        fits = greedy.smallest <= budget
        greedy_cost = cost = _operations(graph) if fits else math.inf
        best, whole, start = greedy, _Whole(graph), begin()
        problem = find_problem(graph, _as_run(graph, self.target), start.buffers)

        def plan(nodes: Sequence[Node]) -> int:
            nonlocal best, whole, cost
            search = begin()
            search.drop_nodes(nodes)
            arena = search.smallest
            # The model is not exact: what little it lacks is dropped by the greedy rule.
            reached = search.reach(budget, lambda size: (size - budget) // 2)
            if reached and (mine := _operations(graph)) < cost:
                best, whole, cost = search, _Whole(graph), mine
            return arena

        operations = _operations(graph)
        note = find_exactly(problem, budget, self.solver_seconds, plan)
        whole.restore()
        best.rewriter = Rewriter(graph)
        if best is greedy:
            return greedy, f"{note}; the greedy choice remains"
        instead = f"takes {(greedy_cost - operations) / 1e6:.1f} M" if fits else "does not fit"
        return best, f"{note}; the greedy choice {instead}"


def _operations(graph: Graph) -> int:
    return sum(node_cost(node) for node in graph.nodes)


def _greedy(begin: Callable[[], "_Search"], budget: int) -> "_Search":
    """Return a search that has dropped activations until the arena fits, or none are left."""
    search = begin()
    if search.smallest <= budget:
        return search
    large = len(search.graph.nodes) >= LARGE
    if large:
        search = _fewest_blocks(begin, budget)
    elif not search.reach(budget, lambda arena: (arena - budget) // 2):
        # With steps independent of the budget: results that are feasible once stay feasible.
        search = begin()
    if search.reach(budget, lambda arena: arena // STEPS) and not large:
        search.drop_others(budget)
    return search


def _plan_by(target: Target) -> Plan:
    scratch = remembered(target.scratch_bytes)

    def plan(graph: Graph) -> tuple[Buffer, ...]:
        kernels = _as_run(graph, target)
        return lifetimes(kernels, scratch, target.alignment, target.in_place).buffers

    return plan


def _as_run(graph: Graph, target: Target) -> Graph:
    """Return a copy of a graph, fused and scheduled."""
    copy = clone(graph)
    run_passes(kernel_passes(target), copy)
    return copy


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
    """Drops activations until an arena fits.

    `buffers` are those of the graph, `smallest` is the smallest arena reached, and `least` the
    graph that reached it.
    """

    graph: Graph
    plan: Plan
    buffers: tuple[Buffer, ...]
    smallest: int

    def __post_init__(self) -> None:
        self.rewriter = Rewriter(self.graph)
        self.least = _Whole(self.graph)

    def reach(self, size: int, step: Callable[[int], int]) -> bool:
        """Drop activations until the arena fits, `step(arena)` bytes at a time; False if
        impossible.
        """
        while self.smallest > size:
            alive = peak_buffers(self.buffers)
            at_peak = {value.name for buffer in alive for value in buffer.values}
            arena = max(lower_bound(alive), self.smallest)
            chosen = self.rewriter.choose(at_peak, step(arena))
            if not chosen:
                return False
            self.rewriter.drop(chosen)
            self._plan_again()
        return True

    def drop_others(self, size: int) -> None:
        """Recompute cheaper values in place of expensive ones, in an arena that fits already.

        More are dropped than necessary, then those with most operations per byte are saved again.
        """
        less = size - size // EXCESS
        self.reach(less, lambda arena: max(arena - less, 0) // 2)
        self._return_to(self.least)
        tried: set[Node] = set()
        while len(tried) < TRIALS and (node := self.rewriter.most_expensive(tried)) is not None:
            tried.add(node)
            fitting = _Whole(self.graph)
            self.rewriter.save(node)
            buffers = self.plan(self.graph)
            if lower_bound(buffers) > size or arena_size(pack(buffers, enough=size)) > size:
                self._return_to(fitting)
        self.smallest = arena_size(pack(self.plan(self.graph)))

    def _return_to(self, whole: "_Whole") -> None:
        whole.restore()
        self.rewriter = Rewriter(self.graph)

    def drop_blocks(self, cuts: Cuts, count: int) -> None:
        """Drop the activations of the first `count` blocks, except values that cross a cut."""
        end = cuts.places[count - 1] + 1 if count else 0
        self.rewriter.drop_before(end, cuts.crossing)
        self._plan_again()

    def drop_nodes(self, nodes: Sequence[Node]) -> None:
        """Recompute what the backward pass reads of some nodes, in reverse order."""
        self.rewriter.drop_nodes(nodes)
        self._plan_again()

    def _plan_again(self) -> None:
        self.buffers = self.plan(self.graph)
        if lower_bound(self.buffers) < self.smallest:  # a lower bound of every plan
            arena = arena_size(pack(self.buffers))
            if arena < self.smallest:
                self.smallest, self.least = arena, _Whole(self.graph)
