"""The solver of recomputation: equal to brute force, never worse than the greedy choice."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine import extras
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory import recompute_exactly
from pockengine.compiler.passes.memory.recompute_problem import Activation, Problem
from pockengine.compiler.passes.memory.recompute_solver import Solution, solve
from pockengine.compiler.program import Program
from pockengine.errors import BudgetError, CompileError, MissingPackage
from pockengine.tests.compiler.small_nets import batches, residual_net

SHAPE = {"batch": 4, "size": 12}

TOLERANCE = 1 << 18
"""Bytes below every difference of two peaks, and above the solver's tolerance."""

SAVED, UNUSED = "saved", "unused"

Choice = int | str
"""The kernel before which an activation is recomputed, or one of the above."""


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to five activations, each read by the kernel that mirrors its own, or by none."""
    count = draw(st.integers(2, 5))
    loss = count
    activations = []
    for place in range(count):
        operands = draw(st.sets(st.integers(0, place - 1), max_size=2)) if place else set()
        first = 2 * count - place if draw(st.integers(0, 3)) else None
        last = None if first is None else min(first + draw(st.integers(0, 2)), 2 * count)
        activations.append(
            Activation(
                size=draw(st.integers(1, 8)) << 20,
                cost=math.inf if draw(st.integers(0, 7)) == 0 else draw(st.integers(0, 9)),
                operands=tuple(sorted(operands)),
                made=place,
                until=draw(st.integers(place, loss)),
                first=first,
                last=last,
                scratch=draw(st.integers(0, 4)) << 20,
            )
        )
    live = [draw(st.integers(0, 4)) << 20 for _ in range(2 * count + 1)]
    return Problem(tuple(activations), loss, tuple(live), tuple(size // 2 for size in live))


def choices(problem: Problem) -> Iterator[tuple[Choice, ...]]:
    """Every choice in which what a recomputation reads is saved or recomputed before."""
    options: list[list[Choice]] = []
    for each, rises in zip(problem.activations, problem.rises, strict=True):
        others: list[Choice] = [SAVED] if each.first is not None else [SAVED, UNUSED]
        options.append([*others, *(problem.moments[moment] for moment in rises)])
    for choice in itertools.product(*options):
        again = [place for place, how in enumerate(choice) if isinstance(how, int)]
        read = [(place, o) for place in again for o in problem.activations[place].operands]
        if all(_is_there(choice[operand], choice[place]) for place, operand in read):
            yield choice


def _is_there(operand: Choice, reader: Choice) -> bool:
    assert isinstance(reader, int)
    return operand <= reader if isinstance(operand, int) else operand is SAVED


def peak(problem: Problem, choice: tuple[Choice, ...]) -> int:
    """Return the most bytes alive: at a kernel, or while an activation is recomputed."""
    spans = [_spans(problem, place, choice) for place in range(len(choice))]

    def alive(kernel: int) -> int:
        return sum(
            each.size
            for each, mine in zip(problem.activations, spans, strict=True)
            if any(kernel in span for span in mine)
        )

    totals = [live + alive(kernel) for kernel, live in enumerate(problem.live)]
    for each, how in zip(problem.activations, choice, strict=True):
        if isinstance(how, int):
            totals.append(problem.between[how] + alive(how) + each.scratch)
    return max(totals)


def _spans(problem: Problem, place: int, choice: tuple[Choice, ...]) -> list[range]:
    each, how = problem.activations[place], choice[place]
    readers = [choice[reader] for reader in problem.readers[place]]
    ends = [_end_of_moment(problem, kernel) for kernel in readers if isinstance(kernel, int)]
    ends += [] if each.last is None else [each.last]
    forward = range(each.made, each.until + 1)
    if how is SAVED:
        return [range(each.made, max([each.until, *ends]) + 1)]
    if isinstance(how, int):
        return [forward, range(how, max(ends, default=how - 1) + 1)]
    return [forward]


def _end_of_moment(problem: Problem, kernel: int) -> int:
    """Return the last kernel before the next moment: the model has no finer times."""
    return min((each - 1 for each in problem.moments if each > kernel), default=len(problem.live))


@settings(max_examples=40, deadline=None)
@given(problems(), st.floats(0, 1))
def test_the_solver_equals_brute_force(problem: Problem, share: float) -> None:
    pytest.importorskip("scipy")
    costs: dict[int, float] = {}
    for choice in choices(problem):
        cost = sum(
            each.cost
            for each, how in zip(problem.activations, choice, strict=True)
            if isinstance(how, int)
        )
        size = peak(problem, choice)
        costs[size] = min(cost, costs.get(size, math.inf))
    least, most = min(costs), max(costs)
    budget = int(least + share * (most - least))
    solution = solve(problem, budget, 60)
    assert solution.before is not None
    assert solution.cost == min(cost for size, cost in costs.items() if size <= budget)
    assert solution.bound <= solution.cost + 1e-6
    assert solve(problem, least - TOLERANCE, 60).bound == math.inf


@pytest.fixture(scope="module")
def plain() -> Program:
    return compile_program(residual_net(**SHAPE))


def trained(program: Program) -> tuple[list[float], Mapping[str, np.ndarray]]:
    """Return the losses and params of ten steps."""
    params = {name: param.data.copy() for name, param in program.params.items()}
    graph = program.entries["train"].graph
    return [float(run(graph, batch, params)["loss"]) for batch in batches(10, **SHAPE)], params


@pytest.mark.parametrize("share", [0.95, 0.88])
def test_the_greedy_choice_is_never_cheaper(plain: Program, share: float) -> None:
    pytest.importorskip("scipy")
    greedy = Training(memory_budget=int(share * plain.arena_bytes))
    reports, steps = [], [trained(plain)]
    for training in (greedy, replace(greedy, solver_seconds=5)):
        program = compile_program(residual_net(**SHAPE), training, check=True)
        assert program.arena_bytes <= int(share * plain.arena_bytes)
        assert program.recomputation is not None
        reports.append(program.recomputation)
        steps.append(trained(program))
    assert reports[1].extra_operations <= reports[0].extra_operations
    assert reports[1].solver is not None
    for losses, params in steps[1:]:
        assert losses == steps[0][0]
        for name, data in params.items():
            np.testing.assert_array_equal(data, steps[0][1][name])


def solved(plain: Program, share: float) -> Program:
    training = Training(memory_budget=int(share * plain.arena_bytes), solver_seconds=5)
    return compile_program(residual_net(**SHAPE), training)


def test_a_search_without_a_bound_has_the_bound_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    result = SimpleNamespace(x=np.zeros(9), mip_dual_bound=-math.inf)
    monkeypatch.setattr(optimize, "milp", lambda *_, **__: result)
    assert solve(Problem((), 0, live=(0,), between=(0,)), 1, 1).bound == 0


def test_a_problem_too_large_is_not_solved(plain: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.setattr(recompute_exactly, "MOST_CHOICES", 0)
    report = solved(plain, 0.9).recomputation
    assert report is not None
    assert report.solver is not None
    assert report.solver.endswith("choices exceed 0; the greedy choice remains")


def test_a_budget_that_only_the_solver_rules_out_is_met(
    plain: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model does not know how kernels are fused: it may need more memory than the program."""
    pytest.importorskip("scipy")
    none = Solution(None, math.inf, math.inf)
    monkeypatch.setattr(recompute_exactly, "solve", lambda *arguments: none)
    report = solved(plain, 0.9).recomputation
    assert report is not None
    assert report.solver == "solver: by its model, no choice fits; the greedy choice remains"


def test_an_unreachable_budget_is_an_error_with_a_solver_too(plain: Program) -> None:
    pytest.importorskip("scipy")
    with pytest.raises(BudgetError, match=r"reaches an arena of \d+ bytes"):
        solved(plain, 0.01)


def test_a_missing_solver_is_an_error_before_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingPackage, match=r"solver_seconds needs scipy, .*\[solver\]"):
        Training(solver_seconds=5)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_a_wrong_time_is_an_error(seconds: float) -> None:
    with pytest.raises(CompileError, match="solver_seconds must be a number of at least 0"):
        Training(solver_seconds=seconds)
