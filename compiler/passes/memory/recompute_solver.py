"""The cheapest recomputation within a budget, exactly: an integer program for SciPy's HiGHS.

Checkmate (Jain et al., MLSys'20) has two binary variables per value and stage, as it recomputes a
value any number of times. Here a value is recomputed at most once, so one variable per value and
moment is enough: `done[a][m]`, whether activation a is recomputed by moment m. It only rises where
the backward pass or another recomputation may read the activation first. From the loss until then
the activation is absent.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pockengine.compiler.passes.memory.recompute_problem import Problem

MEBI = 1 << 20
"""Bytes per unit of the memory rows, so that coefficients are near 1."""

LOSS = -1
"""The moment of the loss, before those of the backward pass."""

GAP = 5e-3
"""Relative distance from the optimum at which the search stops."""

INFEASIBLE = 2
"""SciPy's status of a problem without a solution."""

Terms = Counter[int]
"""Coefficients of a sum by variable; the constant has the key CONSTANT."""

CONSTANT = -1


@dataclass(frozen=True)
class Solution:
    """The kernel before which each recomputed activation is computed again; None if not found.

    `cost` are its multiply-adds. No choice within the budget takes fewer than `bound`, which is
    infinite if none fits.
    """

    before: Mapping[int, int] | None
    cost: float
    bound: float


def solve(problem: Problem, budget: int, seconds: float) -> Solution:
    """Return the cheapest recomputation within `budget` bytes that is found in some seconds.

    Requires SciPy.
    """
    return _Model(problem, budget).solve(seconds)


class _Model:
    """Variables, and rows: sums that are at most 0."""

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem, self.budget = problem, budget
        self.costs: list[float] = []
        self.binary: list[int] = []
        self.rows: list[dict[int, float]] = []
        self.done = [self._recomputed_by(place) for place in range(len(problem.activations))]
        self.later: dict[tuple[int, int], int] = {}
        self._variable(binary=True)  # SciPy refuses a problem without variables
        self._order_recomputations()
        self._bound_forward()
        for moment in range(len(problem.moments)):
            self._bound_backward(moment)

    def solve(self, seconds: float) -> Solution:
        from scipy.optimize import LinearConstraint, milp

        scale = max([1.0, *self.costs])
        limits = [-terms.get(CONSTANT, 0.0) for terms in self.rows]
        result: Any = milp(
            [cost / scale for cost in self.costs],
            integrality=self.binary,
            bounds=(0, 1),
            constraints=LinearConstraint(self._matrix(), -math.inf, limits),
            options={"time_limit": max(seconds, 0), "mip_rel_gap": GAP},
        )
        if result.x is None:
            return Solution(None, math.inf, math.inf if result.status == INFEASIBLE else 0.0)
        before = {
            place: self.problem.moments[min(at for at in done if result.x[done[at]] > 0.5)]
            for place, done in enumerate(self.done)
            if done and result.x[max(done.values())] > 0.5
        }
        cost = sum(self.problem.activations[place].cost for place in before)
        # The bound is minus infinity if time is used up before the search has one.
        return Solution(before, cost, max(result.mip_dual_bound, 0.0) * scale)

    def _matrix(self) -> Any:
        from scipy.sparse import dok_array

        matrix = dok_array((len(self.rows), len(self.costs)))
        for row, terms in enumerate(self.rows):
            for column, value in terms.items():
                if column != CONSTANT and value:
                    matrix[row, column] = value
        return matrix.tocsr()

    def _variable(self, cost: float = 0.0, *, binary: bool = False) -> int:
        self.costs.append(cost)
        self.binary.append(int(binary))
        return len(self.costs) - 1

    def _recomputed_by(self, place: int) -> dict[int, int]:
        """Add the variables of an activation: by moment, and never falling."""
        moments = self.problem.rises[place]
        cost = self.problem.activations[place].cost
        done = {each: self._variable(cost * (each == moments[-1]), binary=True) for each in moments}
        ordered = list(done.values())
        for earlier, later in pairwise(ordered):
            self.rows.append({earlier: 1, later: -1})
        return done

    def _done(self, place: int, moment: int) -> Terms:
        """Whether an activation is recomputed at a moment or before."""
        known = [each for each in self.done[place] if each <= moment]
        return Terms({self.done[place][known[-1]]: 1} if known else {})

    def _ever(self, place: int) -> Terms:
        return Terms({max(self.done[place].values()): 1} if self.done[place] else {})

    def _absent(self, place: int, moment: int) -> Terms:
        absent = self._ever(place)
        absent.subtract(self._done(place, moment))
        return absent

    def _order_recomputations(self) -> None:
        """Require every operand of a recomputation: saved, or recomputed by then."""
        for place, each in enumerate(self.problem.activations):
            for moment in self.done[place]:
                for operand in each.operands:
                    row = self._absent(operand, moment)
                    row.update(self._done(place, moment))
                    row[CONSTANT] -= 1
                    self.rows.append(dict(row))

    def _alive(self, place: int, moment: int) -> Terms:
        """Whether an activation is alive from a moment to the next one."""
        each = self.problem.activations[place]
        kernel = self.problem.moments[moment] if moment != LOSS else self.problem.loss
        if each.first is not None and each.last is not None and kernel <= each.last:
            alive = Terms({CONSTANT: 1})
            if kernel <= each.first:
                alive.subtract(self._absent(place, moment))
            return alive
        readers = [
            reader
            for reader in self.problem.readers[place]
            if self.done[reader] and max(self.done[reader]) >= moment
        ]
        return Terms({self._read_later(place, moment, readers): 1} if readers else {})

    def _read_later(self, place: int, moment: int, readers: list[int]) -> int:
        """Return the variable whether an activation is alive only for recomputations to come."""
        if (place, moment) not in self.later:
            column = self.later[place, moment] = self._variable()
            for reader in readers:
                row = self._ever(reader)
                row.subtract(self._done(reader, moment - 1))
                row.subtract(self._absent(place, moment))
                row[column] -= 1
                self.rows.append(dict(row))
        return self.later[place, moment]

    def _bound_forward(self) -> None:
        """Bound the memory of each kernel up to the first moment of the backward pass."""
        end = self.problem.moments[0] if self.problem.moments else len(self.problem.live)
        most: dict[tuple[tuple[int, int], ...], int] = {}
        for kernel in range(end):
            total = Terms({CONSTANT: self.problem.live[kernel]})
            for place, each in enumerate(self.problem.activations):
                if each.made <= kernel <= each.until:
                    total[CONSTANT] += each.size
                elif each.until < kernel:
                    _add(total, self._alive(place, LOSS), each.size)
            constant = total.pop(CONSTANT)
            terms = tuple(sorted(total.items()))
            most[terms] = max(constant, most.get(terms, 0))
        for terms, constant in most.items():
            self._bound(Terms({**dict(terms), CONSTANT: constant}))

    def _bound_backward(self, moment: int) -> None:
        """Bound the memory from a moment to the next, and of the recomputations in between."""
        kernels = self.problem.moments
        end = kernels[moment + 1] if moment + 1 < len(kernels) else len(self.problem.live)
        alive = Terms()
        for place, each in enumerate(self.problem.activations):
            _add(alive, self._alive(place, moment), each.size)
        self._bound(_sum(alive, max(self.problem.live[kernels[moment] : end])))
        for place, size in self._scratches(moment):
            total = _sum(alive, self.problem.between[kernels[moment]])
            _add(total, self._done(place, moment), size)
            _add(total, self._done(place, moment - 1), -size)
            self._bound(total)

    def _scratches(self, moment: int) -> Iterator[tuple[int, int]]:
        for place, each in enumerate(self.problem.activations):
            if each.scratch and moment in self.done[place]:
                yield place, each.scratch

    def _bound(self, total: Terms) -> None:
        row = {column: size / MEBI for column, size in total.items() if size}
        row[CONSTANT] = (total[CONSTANT] - self.budget) / MEBI
        self.rows.append(row)


def _add(total: Terms, terms: Terms, times: int) -> None:
    for column, value in terms.items():
        total[column] += value * times


def _sum(total: Terms, constant: int) -> Terms:
    total = Terms(total)
    total[CONSTANT] += constant
    return total
