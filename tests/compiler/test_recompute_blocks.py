"""Recomputation of large graphs block by block: the same numbers, few plans, few blocks."""

from dataclasses import replace

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops import node_cost
from pockengine.compiler.options import Training
from pockengine.compiler.passes.memory import recompute
from pockengine.compiler.passes.memory.recompute_blocks import find_cuts
from pockengine.compiler.program import Program
from pockengine.compiler.storage import Storage
from pockengine.errors import BudgetError
from pockengine.tests.compiler.large_graphs import ROWS, WIDTH, deep_net, gated_net

BLOCKS = 40


def compiled(graph: Graph, budget: int | None) -> Program:
    return compile_program(graph, Training(memory_budget=budget), check=True)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every graph as a large one."""
    monkeypatch.setattr(recompute, "LARGE", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("share", [0.8, 0.6])
def test_budget_is_met_and_results_are_preserved(share: float) -> None:
    graph = deep_net(BLOCKS)
    plain = compiled(graph, None)
    budget = int(share * plain.arena_bytes)
    lean = compiled(graph, budget)
    assert lean.arena_bytes <= budget
    random = np.random.default_rng(0)
    batch = {
        "x": random.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "target": random.integers(0, 4, ROWS),
        "lr": np.float32(1e-3),
    }
    results = []
    for program in (plain, lean):
        params = {name: param.data.copy() for name, param in program.params.items()}
        entry = program.entries["train"].graph
        losses = [float(run(entry, batch, params)["loss"]) for _ in range(2)]
        results.append((losses, params))
    assert results[0][0] == results[1][0]
    for name, data in results[0][1].items():
        np.testing.assert_array_equal(results[1][1][name], data)


@pytest.mark.usefixtures("large")
def test_recomputed_blocks_are_minimal() -> None:
    graph = deep_net(BLOCKS)
    arena = compiled(graph, None).arena_bytes
    reports = [compiled(graph, int(share * arena)).recomputation for share in (0.9, 0.75, 0.6)]
    dropped = [len(report.dropped) for report in reports if report is not None]
    assert 0 < dropped[0] < dropped[1] < dropped[2]
    forward = sum(node_cost(node) for node in graph.nodes)
    for report in reports:
        assert report is not None
        assert 0 < report.extra_operations <= forward


def test_large_graphs_need_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = deep_net(160)
    plans = 0
    plan_again = recompute._Search._plan_again

    def counted(search: recompute._Search) -> None:
        nonlocal plans
        plans += 1
        plan_again(search)

    monkeypatch.setattr(recompute._Search, "_plan_again", counted)
    arena = compile_program(graph, Training()).arena_bytes
    lean = compile_program(graph, Training(memory_budget=arena // 2))
    assert lean.arena_bytes <= arena // 2
    assert plans <= 16


@pytest.mark.usefixtures("large")
def test_impossible_budget_reports_the_minimum() -> None:
    graph = deep_net(BLOCKS)
    with pytest.raises(BudgetError, match=r"reaches an arena of \d+ bytes, not 1000") as error:
        compiled(graph, 1000)
    assert compiled(graph, error.value.least).arena_bytes <= error.value.least


@pytest.mark.usefixtures("large")
def test_recomputed_activations_are_rounded_as_in_the_forward_pass() -> None:
    training = Training(storage=Storage(activations="bf16"))
    graph = gated_net(12)
    whole = compile_program(graph, training).arena_bytes

    with pytest.raises(BudgetError) as error:
        compile_program(graph, replace(training, memory_budget=1000))

    # In f32 the recomputed activations of several blocks take 0.45 of the arena.
    assert error.value.least < 0.4 * whole


@pytest.mark.usefixtures("large")
def test_a_budget_changes_no_number_of_a_step_with_rounded_activations() -> None:
    training = Training(storage=Storage(activations="bf16"))
    graph = gated_net(12)
    whole = compile_program(graph, training, check=True)
    budget = whole.arena_bytes // 2
    lean = compile_program(graph, replace(training, memory_budget=budget), check=True)
    random = np.random.default_rng(0)
    batch = {
        "x": random.standard_normal((4 * ROWS, WIDTH)).astype(np.float32),
        "target": random.integers(0, 4, 4 * ROWS),
        "lr": np.float32(1e-3),
    }
    results = []
    for program in (whole, lean):
        # Products of products: with larger weights the numbers overflow.
        params = {name: np.float32(0.05) * each.data for name, each in program.params.items()}
        run(program.entries["train"].graph, batch, params)
        results.append(params)
    assert lean.arena_bytes <= budget
    for name, data in results[0].items():
        assert np.isfinite(data).all()
        np.testing.assert_array_equal(results[1][name], data)


def test_blocks_are_cut_where_the_fewest_bytes_cross() -> None:
    graph = deep_net(BLOCKS)
    results = {result for node in graph.nodes for result in node.results}
    cuts = find_cuts(graph.nodes, results)
    assert 4 <= len(cuts.places) < BLOCKS
    assert all(value.shape == (ROWS, WIDTH) for value in cuts.crossing)
    assert len(cuts.crossing) == len(cuts.places)
    assert find_cuts(graph.nodes, set()).places == ()
