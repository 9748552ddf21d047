"""Model recomputation as an integer program, and plan its solutions.

The order, the buffers and the scratch are those of the graph as it runs without recomputation. A
recomputation changes them a little: other kernels are fused, and the packing has other gaps. So
each solution is planned, and if its arena is too large, the limit of the next one is lower.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pockengine.compiler.ir.graph import LOSS, Graph, Node, Value
from pockengine.compiler.ir.writes import storage
from pockengine.compiler.memory.lifetime import Buffer
from pockengine.compiler.memory.plan import lower_bound
from pockengine.compiler.ops.registry import lookup, node_cost
from pockengine.compiler.passes.memory.dropping import Rewriter
from pockengine.compiler.passes.memory.recompute_problem import Activation, Problem
from pockengine.compiler.passes.memory.recompute_solver import Solution, solve

SHARE = 1000
"""Fraction (1 / SHARE) of the arena below which a value is not worth a variable."""

SOLUTIONS = 5
"""Maximum number of solutions that are planned."""

MOST_CHOICES = 20_000
"""Maximum number of 0-1 variables: BERT-base has 6,000."""


@dataclass(frozen=True)
class Recomputable:
    """The nodes that compute each activation of a problem from others, in order."""

    problem: Problem
    nodes: tuple[tuple[Node, ...], ...]

    def in_reverse(self, places: Collection[int]) -> tuple[Node, ...]:
        """Return the nodes of some activations, the last node first."""
        return tuple(
            node for place in sorted(places, reverse=True) for node in reversed(self.nodes[place])
        )


def find_exactly(
    found: Recomputable, budget: int, seconds: float, plan: Callable[[Sequence[Node]], int]
) -> str:
    """Solve a problem, plan the solution, and solve again until its arena just fits.

    `plan` recomputes nodes, which are in reverse order, and returns the arena. The model's limit is
    the budget at first, then between the largest limit whose arena fits and the smallest whose
    arena does not. Returns the solver's bound, or the reason why there is none.
    """
    if (choices := sum(map(len, found.problem.rises))) > MOST_CHOICES:
        return f"solver not used: {choices} choices exceed {MOST_CHOICES}"
    end = time.monotonic() + seconds
    limit, fitting, exceeding, note = budget, 0, budget, ""
    for attempt in range(SOLUTIONS):
        solution = solve(found.problem, limit, (end - time.monotonic()) / 2)
        if attempt == 0:
            note = _note(solution, seconds / 2)
        if solution.before is None:
            break
        excess = plan(found.in_reverse(solution.before.keys())) - budget
        if excess > 0:
            exceeding = limit
            limit = (fitting + limit) // 2 if fitting else limit - excess
        elif limit == budget:
            break
        else:
            fitting, limit = limit, (limit + exceeding) // 2
    return note


def _note(first: Solution, seconds: float) -> str:
    """Describe the solution whose limit is the budget itself."""
    if first.bound == math.inf:
        return "solver: by its model, no choice fits"
    if first.before is None:
        return f"solver: no choice found in {seconds:g} s"
    return f"solver: by its model, no choice takes less than {first.bound / 1e6:.1f} M"


def find_problem(graph: Graph, kernels: Graph, buffers: Sequence[Buffer]) -> Recomputable:
    """State the problem of a graph, given the same graph as it will run and its buffers."""
    return _Finder(graph, kernels, buffers).find()


class _Kernels:
    """Positions at which values are computed and read, in the graph as it runs, by name."""

    def __init__(self, kernels: Graph, buffers: Sequence[Buffer]) -> None:
        self.made: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        for place, node in enumerate(kernels.nodes):
            self.made.update((result.name, place) for result in node.results)
            for operand in node.operands:
                self.readers.setdefault(operand.name, []).append(place)
        self.loss = self.made[kernels.outputs[LOSS].name]
        self.count = len(kernels.nodes)
        self.buffers = {value.name: buffer for buffer in buffers for value in buffer.values}


@dataclass(frozen=True)
class _Unit:
    """A value, the nodes that compute it from other units, and those units."""

    value: Value
    nodes: tuple[Node, ...]
    operands: tuple[Value, ...]

    @property
    def cost(self) -> float:
        """Multiply-adds; infinite if a node writes a param."""
        if any(lookup(node.op).writes for node in self.nodes):
            return math.inf
        return sum(node_cost(node) for node in self.nodes)


class _Finder:
    """Finds the activations of a graph: saved ones, and others worth saving in their place.

    Those others are results of costly nodes, and values computed from several activations.
    """

    def __init__(self, graph: Graph, kernels: Graph, buffers: Sequence[Buffer]) -> None:
        self.buffers, self.kernels = buffers, _Kernels(kernels, buffers)
        self.rewriter, self.users = Rewriter(graph), graph.users()
        self.smallest = lower_bound(buffers) // SHARE
        self.views: dict[Value, list[Value]] = {}  # a value and its views, also backward ones
        for node in graph.nodes:
            for value in node.results:
                self.views.setdefault(storage(value), []).append(value)

    def find(self) -> Recomputable:
        units = self._units()
        place = {unit.value: at for at, unit in enumerate(units)}
        activations = [
            self._activation(unit, tuple(place[operand] for operand in unit.operands))
            for unit in units
        ]
        live, between = self._other_bytes(units, activations)
        problem = Problem(tuple(activations), self.kernels.loss, live, between)
        return Recomputable(problem, tuple((*unit.nodes, *self._views(unit)) for unit in units))

    def _views(self, unit: _Unit) -> list[Node]:
        """Return the forward nodes that view a unit's value: they are dropped with it."""
        nodes = (value.node for value in self.views[unit.value][1:])
        return [n for n in nodes if n is not None and n not in self.rewriter.backward]

    def _units(self) -> list[_Unit]:
        outputs = {storage(value) for value in self.rewriter.backward.graph.outputs.values()}
        large = [
            value
            for node in self.rewriter.forward
            for value in node.results
            if value in self.views and value not in outputs and self._is_large(value)
        ]
        chosen: dict[Value, None] = {}
        for value in large:
            if self._is_read(value) or self._may_help(value, chosen):
                chosen[value] = None
        units = [self._unit(value, chosen) for value in chosen]
        readers = Counter(operand for unit in units for operand in unit.operands)
        alone = {v for unit in units for v in unit.operands if self._is_idle(v, unit, readers)}
        kept = [value for value in chosen if value not in alone]
        return [self._unit(value, kept) for value in kept]

    def _is_large(self, value: Value) -> bool:
        return value.type.nbytes >= self.smallest

    def _is_read(self, value: Value) -> bool:
        """Whether the backward pass reads a value as it was saved."""
        return bool(self._readers(value, after=self.kernels.loss))

    def _may_help(self, value: Value, chosen: Collection[Value]) -> bool:
        assert value.node is not None
        if value in self.rewriter.copies:
            return False
        return node_cost(value.node) > 0 or len(self._unit(value, chosen).operands) > 1

    def _is_idle(self, value: Value, unit: _Unit, readers: Mapping[Value, int]) -> bool:
        """Whether saving an unread value helps only one unit, which might as well be saved."""
        smaller = unit.value.type.nbytes <= value.type.nbytes
        return not self._is_read(value) and readers[value] == 1 and smaller

    def _unit(self, value: Value, chosen: Collection[Value]) -> _Unit:
        """Walk back from a value to others that are chosen, small, or not computed."""
        assert value.node is not None
        nodes: dict[Node, None] = {}
        operands: dict[Value, None] = {}
        pending = [value.node]
        while pending:
            missing = []
            for operand in pending[-1].operands:
                root = storage(operand)
                if root is not value and root in chosen:
                    operands[root] = None
                elif operand.node is not None and self._is_large(operand):
                    missing += [operand.node] if operand.node not in nodes else []
            if missing:
                pending.append(missing[0])
            else:
                nodes[pending.pop()] = None
        return _Unit(value, tuple(nodes), tuple(operands))

    def _activation(self, unit: _Unit, operands: tuple[int, ...]) -> Activation:
        value, loss = unit.value, self.kernels.loss
        back, made = self._readers(value, after=loss), self._made(value)
        buffer = self.kernels.buffers.get(value.name)
        until = max((place for place in self._readers(value) if place <= loss), default=made)
        return Activation(
            size=value.type.nbytes if buffer is None else buffer.room,
            cost=unit.cost,
            operands=operands,
            made=made,
            until=until,
            first=min(back, default=None),
            last=max(back, default=None),
            scratch=self._scratch(unit),
        )

    def _readers(self, value: Value, after: int = -1) -> list[int]:
        """Positions of the kernels that read a value or a view of it."""
        names = [each.name for each in self.views[value]]
        places = (place for name in names for place in self.kernels.readers.get(name, ()))
        return [place for place in places if place > after]

    def _made(self, value: Value) -> int:
        """Return the position of the kernel that computes a value, also if it is not stored."""
        while (place := self.kernels.made.get(value.name)) is None:
            results = (each for user in self.users.get(value, ()) for each in user.results)
            if (reader := next(results, None)) is None:
                return self.kernels.loss
            value = reader
        return place

    def _scratch(self, unit: _Unit) -> int:
        """Return the peak of the stored values between a unit's operands and itself."""
        last = {
            storage(operand): place
            for place, node in enumerate(unit.nodes)
            for operand in node.operands
        }
        alive: dict[Value, int] = {}
        peak = 0
        for place, node in enumerate(unit.nodes):
            for result in map(storage, node.results):
                if result is not unit.value and result.name in self.kernels.buffers:
                    alive[result] = result.type.nbytes
            peak = max(peak, sum(alive.values()))
            alive = {value: size for value, size in alive.items() if last.get(value, 0) > place}
        return peak

    def _other_bytes(
        self, units: Sequence[_Unit], activations: Sequence[Activation]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bytes alive at each kernel, and right before it, beside the activations."""
        spans: dict[Buffer, list[range]] = {}
        for unit, each in zip(units, activations, strict=True):
            if (buffer := self.kernels.buffers.get(unit.value.name)) is not None:
                last = each.until if each.last is None else each.last
                spans.setdefault(buffer, []).append(range(each.made, last + 1))
        live, between = [0] * self.kernels.count, [0] * self.kernels.count
        for buffer in self.buffers:
            taken = spans.get(buffer, [])
            for place in range(max(buffer.first, 0), min(buffer.last + 1, len(live))):
                if not any(place in span for span in taken):
                    live[place] += buffer.room
                    between[place] += buffer.room * (place > buffer.first)
        return tuple(live), tuple(between)
